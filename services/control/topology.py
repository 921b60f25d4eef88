"""The topology: what an operator writes down about the mesh. Data alone; other modules make xDS of it.

regions:                                # optional; the nearest one serves, the others stand in by distance
  west: {latitude: 52.5, longitude: 13.4}
  east: {latitude: 35.7, longitude: 139.7}
services:
  cache:
    balance: ring_hash                  # the same tenant, the same replica
    hash_header: x-hedgerow-tenant
    endpoints:
      - {address: "10.0.0.1:50051", region: west}
      - {address: "cache.east.example:50051", region: east}   # a name: all its addresses, looked up again and again
  llm-quality:
    endpoints:
      - {address: "10.0.0.2:50053", region: west, weight: 95}
      - {address: "10.0.0.3:50053", region: west, weight: 5, build: canary}
edge:
  address: 0.0.0.0:8443
"""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from google.rpc import code_pb2
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from services.runtime import yaml_file
from services.runtime.errors import shorten
from services.runtime.process.config import is_loopback
from services.runtime.rpc.authorization import TENANT_HEADER


def _has_a_port(address: str) -> str:
    port = int(address.rpartition(":")[2])
    if not 1 <= port <= 65_535:
        raise ValueError(f"a port from 1 to 65535 is required, {port} is none")
    return address


def _is_printable(text: str) -> str:
    """Resources hold UTF-8, and names of hosts no NUL: others would be noticed no sooner than in force."""
    if not text.isprintable():
        raise ValueError("printable characters are required")
    return text


def _is_a_failure(status: str) -> str:
    if status not in code_pb2.Code.keys() or status == "OK":  # noqa: SIM118  # an enum is no mapping
        raise ValueError("a gRPC status code other than OK is required")
    return status


Label = Annotated[str, AfterValidator(_is_printable)]
Address = Annotated[Label, Field(pattern=r"^(\[[0-9a-fA-F:]+\]|[^\s:\[\]/]+):[0-9]{1,5}$"), AfterValidator(_has_a_port)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Percent = Annotated[float, Field(ge=0, le=100)]
_MOST = 2**31 - 1  # of sizes and times: Envoy refuses the whole listener or cluster for more


class BadTopology(ValueError):
    """The file is invalid; the message, for the operator, names the field."""


class _TopologyPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Region(_TopologyPart):
    """The position of a region in degrees, to find near regions."""

    latitude: float = Field(ge=-90, le=90)
    longitude: float = Field(ge=-180, le=180)


class ServiceEndpoint(_TopologyPart):
    """One serving process, or all processes of a DNS name (such as a headless service of Kubernetes)."""

    address: Address
    region: Label = ""
    zone: Label = ""
    build: Label = ""  # distinguishes a canary from the rest
    weight: int = Field(1, ge=1, le=1_000)
    http_port: int = Field(0, ge=0, le=65_535)  # its HTTP port, for the edge; 0: none


class Outliers(_TopologyPart):
    """Outlier detection: when clients eject an endpoint because of failed calls."""

    consecutive_failures: int = Field(5, ge=0, le=1_000)  # 0: never
    interval_ms: int = Field(1_000, ge=10, le=_MOST)
    ejection_ms: int = Field(5_000, ge=10, le=_MOST)  # the first time; each further ejection is longer
    max_ejected_percent: int = Field(50, ge=0, le=100)


class ConnectionLimits(_TopologyPart):
    """A client's limits for the whole service: a circuit breaker's thresholds."""

    requests: int = Field(1_024, ge=1)
    pending: int = Field(1_024, ge=1)  # Envoy alone
    connections: int = Field(1_024, ge=1)  # Envoy alone
    retries: int = Field(3, ge=0)  # Envoy alone


class Drill(_TopologyPart):
    """Injected faults, to test hedges and fallbacks."""

    delay_ms: int = Field(0, ge=0, le=600_000)
    delay_percent: Percent = 100
    abort: Annotated[str, AfterValidator(_is_a_failure)] = "UNAVAILABLE"  # a gRPC status code; its status by HTTP
    abort_percent: Percent = 0
    drop_percent: Percent = 0  # of calls, before an endpoint is chosen


class MeshService(_TopologyPart):
    """One service: `xds:///<name>` reaches it."""

    endpoints: tuple[ServiceEndpoint, ...] = Field(min_length=1)
    balance: Literal["round_robin", "least_request", "ring_hash"] = "round_robin"
    hash_header: str = Field(TENANT_HEADER, min_length=1)  # for `ring_hash`
    identity: str = ""  # in the certificate of its endpoints; empty: the name up to its first `-`
    timeout_ms: int = Field(0, ge=0)  # limit of a call, also of one with a later deadline; 0: no limit
    outliers: Outliers = Outliers()
    limits: ConnectionLimits = ConnectionLimits()
    drill: Drill | None = None

    @property
    def http(self) -> bool:
        """Whether an endpoint of it serves HTTP."""
        return any(endpoint.http_port for endpoint in self.endpoints)


class Jwt(_TopologyPart):
    """Callers from outside authenticate with a JSON Web Token that one of these keys signed."""

    issuer: str = Field(min_length=1)
    # The token must have one of these; otherwise a token for any other service of the issuer would be valid here.
    audiences: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    jwks_file: Path  # the public keys, as a JSON Web Key Set; read together with the topology
    tenant_claim: str = Field("tenant", min_length=1)  # a `.` separates the names of nested claims
    _jwks: str = PrivateAttr("")

    @model_validator(mode="after")
    def _read_keys(self) -> Self:
        try:
            text = self.jwks_file.read_text("utf-8")
            keys = json.loads(text)["keys"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"jwks_file: a JSON Web Key Set is required ({type(error).__name__}: {error})") from None
        if not (isinstance(keys, list) and keys and all(isinstance(key, dict) for key in keys)):
            raise ValueError(f"jwks_file: a list with at least one key is required, {self.jwks_file} has none")
        self._jwks = text
        return self

    @property
    def jwks(self) -> str:
        """The key set itself, JSON."""
        return self._jwks


class EdgeLimits(_TopologyPart):
    """Limits of one connection, and of all of them."""

    connections: int = Field(10_000, ge=1)
    streams_per_connection: int = Field(100, ge=1, le=_MOST)
    buffer_bytes: int = Field(32 * 1024, ge=16 * 1024)
    stream_window_bytes: int = Field(64 * 1024, ge=65_535, le=_MOST)
    connection_window_bytes: int = Field(1024 * 1024, ge=65_535, le=_MOST)
    idle_s: int = Field(3_600, ge=1, le=_MOST)
    request_headers_s: int = Field(10, ge=1, le=_MOST)
    request_headers_kb: int = Field(16, ge=1, le=8_192)
    # Without a byte either way; longer than the gateway's largest budget.
    stream_idle_s: int = Field(660, ge=1, le=_MOST)
    health_checks: int = Field(64, ge=1)  # at once, of all callers together; they need no credential


class Edge(_TopologyPart):
    """The entry for callers from outside, which Envoy serves: gRPC, gRPC-Web and CORS on one port."""

    address: Address
    service: Name = "gateway"
    tls: bool = False  # whether callers speak TLS to it; its certificate is in Envoy's bootstrap
    cors_origins: tuple[str, ...] = ()  # of pages that may call; `*`: all
    jwt: Jwt | None = None  # None: the gateway alone checks credentials
    allow_anonymous: bool | None = None  # whether calls come in without a credential; None: only on loopback
    limits: EdgeLimits = EdgeLimits()
    otlp_endpoint: str = ""  # for Envoy's spans, the cluster `otlp` of its bootstrap; empty: no spans
    trace_percent: Percent = 100  # of calls without a traceparent; the others' own sampling decision applies

    @field_validator("address")
    @classmethod
    def _can_be_listened_on(cls, address: str) -> str:
        host, _, _ = address.rpartition(":")
        ipaddress.ip_address(host.strip("[]"))  # Envoy cannot listen on a name; the error has the value
        return address

    @model_validator(mode="after")
    def _tokens_are_credentials(self) -> Self:
        if self.jwt and self.allow_anonymous:
            raise ValueError("allow_anonymous: false with `jwt`, which requires a token, got true")
        return self

    @property
    def wants_bearer(self) -> bool:
        """Whether it refuses a call without an API key, whatever the key. With `jwt`, tokens are checked instead."""
        open_to_all = is_loopback(self.address) if self.allow_anonymous is None else self.allow_anonymous
        return not open_to_all and self.jwt is None


class Topology(_TopologyPart):
    """The whole file."""

    regions: dict[Label, Region] = {}
    services: dict[Name, MeshService] = Field(min_length=1)
    edge: Edge | None = None
    mtls: bool = False  # whether services prove their identity to each other

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        if self.edge and self.edge.service not in self.services:
            raise ValueError(f"edge.service: one of {', '.join(self.services)}, got {self.edge.service}")
        if self.edge and self.edge.jwt and self.services[self.edge.service].http and not self.mtls:
            # In plain text nothing proves to it that a tenant's name comes from the edge.
            where = f"services.{self.edge.service}.endpoints[].http_port"
            raise ValueError(f"{where}: 0 with edge.jwt and without mtls, got another")
        for name, service in self.services.items():
            for number, endpoint in enumerate(service.endpoints):
                if self.regions and endpoint.region not in self.regions:
                    where = f"services.{name}.endpoints[{number}].region"
                    raise ValueError(f"{where}: one of {', '.join(self.regions)}, got {endpoint.region or 'nothing'}")
        return self


def read(file: Path) -> Topology:
    """The topology in a YAML file. Raises `BadTopology`."""
    try:
        return Topology.model_validate(yaml_file.parse(file.read_text("utf-8")))
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"])) or str(file)
        wrong = problem["msg"].removeprefix("Value error, ")
        raise BadTopology(f"topology: {field}: {wrong}, got {shorten(repr(problem['input']))}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadTopology(f"topology: {' '.join(str(error).split())}") from None
