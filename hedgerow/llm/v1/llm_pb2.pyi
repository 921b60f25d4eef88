from hedgerow.chat.v1 import chat_pb2 as _chat_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenerateRequest(_message.Message):
    __slots__ = ("messages", "sampling", "response_format", "prefix", "cache_salt")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_chat_pb2.Message]
    sampling: _chat_pb2.Sampling
    response_format: _chat_pb2.ResponseFormat
    prefix: str
    cache_salt: str
    def __init__(self, messages: _Optional[_Iterable[_Union[_chat_pb2.Message, _Mapping]]] = ..., sampling: _Optional[_Union[_chat_pb2.Sampling, _Mapping]] = ..., response_format: _Optional[_Union[_chat_pb2.ResponseFormat, _Mapping]] = ..., prefix: _Optional[str] = ..., cache_salt: _Optional[str] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("text", "tokens", "finish")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: int
    finish: Finish
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[int] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("reason", "usage", "queue_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    reason: _chat_pb2.FinishReason
    usage: _chat_pb2.Usage
    queue_ms: float
    def __init__(self, reason: _Optional[_Union[_chat_pb2.FinishReason, str]] = ..., usage: _Optional[_Union[_chat_pb2.Usage, _Mapping]] = ..., queue_ms: _Optional[float] = ...) -> None: ...

class CountTokensRequest(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_chat_pb2.Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[_chat_pb2.Message, _Mapping]]] = ...) -> None: ...

class CountTokensResponse(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    def __init__(self, tokens: _Optional[int] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("name", "engine", "context_tokens", "max_tokens", "speculation", "running", "waiting", "continues")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    engine: str
    context_tokens: int
    max_tokens: int
    speculation: str
    running: int
    waiting: int
    continues: bool
    def __init__(self, name: _Optional[str] = ..., engine: _Optional[str] = ..., context_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., speculation: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., continues: _Optional[bool] = ...) -> None: ...
