from hedgerow.chat.v1 import chat_pb2 as _chat_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Feature(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FEATURE_UNSPECIFIED: _ClassVar[Feature]
    FEATURE_TOOLS: _ClassVar[Feature]
    FEATURE_LOGPROBS: _ClassVar[Feature]
    FEATURE_LOGIT_BIAS: _ClassVar[Feature]
    FEATURE_IMAGES: _ClassVar[Feature]
    FEATURE_AUDIO: _ClassVar[Feature]
    FEATURE_CHOICE: _ClassVar[Feature]
    FEATURE_GRAMMAR: _ClassVar[Feature]
    FEATURE_TOP_K: _ClassVar[Feature]
    FEATURE_VLLM_SAMPLING: _ClassVar[Feature]
FEATURE_UNSPECIFIED: Feature
FEATURE_TOOLS: Feature
FEATURE_LOGPROBS: Feature
FEATURE_LOGIT_BIAS: Feature
FEATURE_IMAGES: Feature
FEATURE_AUDIO: Feature
FEATURE_CHOICE: Feature
FEATURE_GRAMMAR: Feature
FEATURE_TOP_K: Feature
FEATURE_VLLM_SAMPLING: Feature

class GenerateRequest(_message.Message):
    __slots__ = ("messages", "sampling", "response_format", "prefix", "cache_salt", "tools", "tool_choice", "parallel_tool_calls", "original", "most_tokens", "omit_untranslated")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_FIELD_NUMBER: _ClassVar[int]
    MOST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OMIT_UNTRANSLATED_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_chat_pb2.Message]
    sampling: _chat_pb2.Sampling
    response_format: _chat_pb2.ResponseFormat
    prefix: str
    cache_salt: str
    tools: _containers.RepeatedCompositeFieldContainer[_chat_pb2.Tool]
    tool_choice: _chat_pb2.ToolChoice
    parallel_tool_calls: bool
    original: _chat_pb2.Original
    most_tokens: int
    omit_untranslated: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[_chat_pb2.Message, _Mapping]]] = ..., sampling: _Optional[_Union[_chat_pb2.Sampling, _Mapping]] = ..., response_format: _Optional[_Union[_chat_pb2.ResponseFormat, _Mapping]] = ..., prefix: _Optional[str] = ..., cache_salt: _Optional[str] = ..., tools: _Optional[_Iterable[_Union[_chat_pb2.Tool, _Mapping]]] = ..., tool_choice: _Optional[_Union[_chat_pb2.ToolChoice, _Mapping]] = ..., parallel_tool_calls: _Optional[bool] = ..., original: _Optional[_Union[_chat_pb2.Original, _Mapping]] = ..., most_tokens: _Optional[int] = ..., omit_untranslated: _Optional[bool] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("text", "tokens", "finish", "tool_calls", "reasoning", "logprobs", "relayed")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    RELAYED_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: int
    finish: Finish
    tool_calls: _containers.RepeatedCompositeFieldContainer[_chat_pb2.ToolCallDelta]
    reasoning: str
    logprobs: _containers.RepeatedCompositeFieldContainer[_chat_pb2.TokenLogprob]
    relayed: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[int] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ..., tool_calls: _Optional[_Iterable[_Union[_chat_pb2.ToolCallDelta, _Mapping]]] = ..., reasoning: _Optional[str] = ..., logprobs: _Optional[_Iterable[_Union[_chat_pb2.TokenLogprob, _Mapping]]] = ..., relayed: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("reason", "usage", "queue_ms", "billed_cached_tokens", "billed_cache_write_tokens", "own_max_tokens", "identity", "omitted")
    REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    BILLED_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BILLED_CACHE_WRITE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OWN_MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    OMITTED_FIELD_NUMBER: _ClassVar[int]
    reason: _chat_pb2.FinishReason
    usage: _chat_pb2.Usage
    queue_ms: float
    billed_cached_tokens: int
    billed_cache_write_tokens: int
    own_max_tokens: int
    identity: str
    omitted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reason: _Optional[_Union[_chat_pb2.FinishReason, str]] = ..., usage: _Optional[_Union[_chat_pb2.Usage, _Mapping]] = ..., queue_ms: _Optional[float] = ..., billed_cached_tokens: _Optional[int] = ..., billed_cache_write_tokens: _Optional[int] = ..., own_max_tokens: _Optional[int] = ..., identity: _Optional[str] = ..., omitted: _Optional[_Iterable[str]] = ...) -> None: ...

class CountTokensRequest(_message.Message):
    __slots__ = ("messages", "tools")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_chat_pb2.Message]
    tools: _containers.RepeatedCompositeFieldContainer[_chat_pb2.Tool]
    def __init__(self, messages: _Optional[_Iterable[_Union[_chat_pb2.Message, _Mapping]]] = ..., tools: _Optional[_Iterable[_Union[_chat_pb2.Tool, _Mapping]]] = ...) -> None: ...

class CountTokensResponse(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    def __init__(self, tokens: _Optional[int] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("name", "engine", "context_tokens", "max_tokens", "speculation", "running", "waiting", "continues", "features", "default_sampling", "outage")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SAMPLING_FIELD_NUMBER: _ClassVar[int]
    OUTAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    engine: str
    context_tokens: int
    max_tokens: int
    speculation: str
    running: int
    waiting: int
    continues: bool
    features: _containers.RepeatedScalarFieldContainer[Feature]
    default_sampling: _chat_pb2.Sampling
    outage: Outage
    def __init__(self, name: _Optional[str] = ..., engine: _Optional[str] = ..., context_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., speculation: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., continues: _Optional[bool] = ..., features: _Optional[_Iterable[_Union[Feature, str]]] = ..., default_sampling: _Optional[_Union[_chat_pb2.Sampling, _Mapping]] = ..., outage: _Optional[_Union[Outage, _Mapping]] = ...) -> None: ...

class Outage(_message.Message):
    __slots__ = ("url", "reason")
    URL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    url: str
    reason: str
    def __init__(self, url: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
