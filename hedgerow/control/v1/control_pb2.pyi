from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EndpointHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENDPOINT_HEALTH_UNSPECIFIED: _ClassVar[EndpointHealth]
    ENDPOINT_HEALTH_SERVING: _ClassVar[EndpointHealth]
    ENDPOINT_HEALTH_NOT_SERVING: _ClassVar[EndpointHealth]
    ENDPOINT_HEALTH_UNREACHABLE: _ClassVar[EndpointHealth]
ENDPOINT_HEALTH_UNSPECIFIED: EndpointHealth
ENDPOINT_HEALTH_SERVING: EndpointHealth
ENDPOINT_HEALTH_NOT_SERVING: EndpointHealth
ENDPOINT_HEALTH_UNREACHABLE: EndpointHealth

class Endpoint(_message.Message):
    __slots__ = ("address", "region", "zone", "build", "weight", "health", "health_ms", "in_service")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    HEALTH_MS_FIELD_NUMBER: _ClassVar[int]
    IN_SERVICE_FIELD_NUMBER: _ClassVar[int]
    address: str
    region: str
    zone: str
    build: str
    weight: int
    health: EndpointHealth
    health_ms: int
    in_service: bool
    def __init__(self, address: _Optional[str] = ..., region: _Optional[str] = ..., zone: _Optional[str] = ..., build: _Optional[str] = ..., weight: _Optional[int] = ..., health: _Optional[_Union[EndpointHealth, str]] = ..., health_ms: _Optional[int] = ..., in_service: _Optional[bool] = ...) -> None: ...

class Service(_message.Message):
    __slots__ = ("name", "balance", "endpoints", "drill")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    DRILL_FIELD_NUMBER: _ClassVar[int]
    name: str
    balance: str
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    drill: str
    def __init__(self, name: _Optional[str] = ..., balance: _Optional[str] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., drill: _Optional[str] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("type_url", "names", "sent_version", "acked_version", "refused")
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ACKED_VERSION_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    type_url: str
    names: _containers.RepeatedScalarFieldContainer[str]
    sent_version: str
    acked_version: str
    refused: str
    def __init__(self, type_url: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., sent_version: _Optional[str] = ..., acked_version: _Optional[str] = ..., refused: _Optional[str] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("node", "agent", "region", "connected_ms", "subscriptions")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    node: str
    agent: str
    region: str
    connected_ms: int
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    def __init__(self, node: _Optional[str] = ..., agent: _Optional[str] = ..., region: _Optional[str] = ..., connected_ms: _Optional[int] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ...) -> None: ...

class GetMeshRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMeshResponse(_message.Message):
    __slots__ = ("version", "topology_file", "topology_problem", "services", "clients")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FILE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    version: str
    topology_file: str
    topology_problem: str
    services: _containers.RepeatedCompositeFieldContainer[Service]
    clients: _containers.RepeatedCompositeFieldContainer[Client]
    def __init__(self, version: _Optional[str] = ..., topology_file: _Optional[str] = ..., topology_problem: _Optional[str] = ..., services: _Optional[_Iterable[_Union[Service, _Mapping]]] = ..., clients: _Optional[_Iterable[_Union[Client, _Mapping]]] = ...) -> None: ...
