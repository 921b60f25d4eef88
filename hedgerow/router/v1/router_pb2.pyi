from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelTier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_TIER_UNSPECIFIED: _ClassVar[ModelTier]
    MODEL_TIER_FAST: _ClassVar[ModelTier]
    MODEL_TIER_BALANCED: _ClassVar[ModelTier]
    MODEL_TIER_QUALITY: _ClassVar[ModelTier]

class ObservedOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBSERVED_OUTCOME_UNSPECIFIED: _ClassVar[ObservedOutcome]
    OBSERVED_OUTCOME_OK: _ClassVar[ObservedOutcome]
    OBSERVED_OUTCOME_BUDGET: _ClassVar[ObservedOutcome]
    OBSERVED_OUTCOME_FAILED: _ClassVar[ObservedOutcome]
MODEL_TIER_UNSPECIFIED: ModelTier
MODEL_TIER_FAST: ModelTier
MODEL_TIER_BALANCED: ModelTier
MODEL_TIER_QUALITY: ModelTier
OBSERVED_OUTCOME_UNSPECIFIED: ObservedOutcome
OBSERVED_OUTCOME_OK: ObservedOutcome
OBSERVED_OUTCOME_BUDGET: ObservedOutcome
OBSERVED_OUTCOME_FAILED: ObservedOutcome

class Latency(_message.Message):
    __slots__ = ("p50_ms", "p95_ms", "p99_ms", "samples")
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    p50_ms: float
    p95_ms: float
    p99_ms: float
    samples: int
    def __init__(self, p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ..., samples: _Optional[int] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "tier", "context_tokens", "prompt_usd_per_mtok", "completion_usd_per_mtok", "ttft", "total", "failure_rate", "sees", "cached_prompt_usd_per_mtok", "cache_write_usd_per_mtok", "identity")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_USD_PER_MTOK_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_USD_PER_MTOK_FIELD_NUMBER: _ClassVar[int]
    TTFT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_RATE_FIELD_NUMBER: _ClassVar[int]
    SEES_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_USD_PER_MTOK_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_USD_PER_MTOK_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    tier: ModelTier
    context_tokens: int
    prompt_usd_per_mtok: float
    completion_usd_per_mtok: float
    ttft: Latency
    total: Latency
    failure_rate: float
    sees: bool
    cached_prompt_usd_per_mtok: float
    cache_write_usd_per_mtok: float
    identity: str
    def __init__(self, name: _Optional[str] = ..., tier: _Optional[_Union[ModelTier, str]] = ..., context_tokens: _Optional[int] = ..., prompt_usd_per_mtok: _Optional[float] = ..., completion_usd_per_mtok: _Optional[float] = ..., ttft: _Optional[_Union[Latency, _Mapping]] = ..., total: _Optional[_Union[Latency, _Mapping]] = ..., failure_rate: _Optional[float] = ..., sees: _Optional[bool] = ..., cached_prompt_usd_per_mtok: _Optional[float] = ..., cache_write_usd_per_mtok: _Optional[float] = ..., identity: _Optional[str] = ...) -> None: ...

class WatchTableRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchTableResponse(_message.Message):
    __slots__ = ("version", "models")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    version: int
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, version: _Optional[int] = ..., models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("model", "ttft_ms", "total_ms", "completion_tokens", "outcome")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    model: str
    ttft_ms: float
    total_ms: float
    completion_tokens: int
    outcome: ObservedOutcome
    def __init__(self, model: _Optional[str] = ..., ttft_ms: _Optional[float] = ..., total_ms: _Optional[float] = ..., completion_tokens: _Optional[int] = ..., outcome: _Optional[_Union[ObservedOutcome, str]] = ...) -> None: ...

class ObserveRequest(_message.Message):
    __slots__ = ("observations",)
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.RepeatedCompositeFieldContainer[Observation]
    def __init__(self, observations: _Optional[_Iterable[_Union[Observation, _Mapping]]] = ...) -> None: ...

class ObserveResponse(_message.Message):
    __slots__ = ("taken",)
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    taken: int
    def __init__(self, taken: _Optional[int] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...
