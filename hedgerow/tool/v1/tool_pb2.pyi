from hedgerow.chat.v1 import chat_pb2 as _chat_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListToolsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListToolsResponse(_message.Message):
    __slots__ = ("tools",)
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[ToolDescription]
    def __init__(self, tools: _Optional[_Iterable[_Union[ToolDescription, _Mapping]]] = ...) -> None: ...

class ToolDescription(_message.Message):
    __slots__ = ("tool", "idempotent", "reusable_ms", "question_argument")
    TOOL_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    REUSABLE_MS_FIELD_NUMBER: _ClassVar[int]
    QUESTION_ARGUMENT_FIELD_NUMBER: _ClassVar[int]
    tool: _chat_pb2.Tool
    idempotent: bool
    reusable_ms: int
    question_argument: str
    def __init__(self, tool: _Optional[_Union[_chat_pb2.Tool, _Mapping]] = ..., idempotent: _Optional[bool] = ..., reusable_ms: _Optional[int] = ..., question_argument: _Optional[str] = ...) -> None: ...

class CallToolRequest(_message.Message):
    __slots__ = ("name", "arguments", "idempotency_key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    arguments: str
    idempotency_key: str
    def __init__(self, name: _Optional[str] = ..., arguments: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class CallToolResponse(_message.Message):
    __slots__ = ("content", "failed", "citations")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    content: str
    failed: bool
    citations: _containers.RepeatedCompositeFieldContainer[Citation]
    def __init__(self, content: _Optional[str] = ..., failed: _Optional[bool] = ..., citations: _Optional[_Iterable[_Union[Citation, _Mapping]]] = ...) -> None: ...

class Citation(_message.Message):
    __slots__ = ("source", "title", "text", "score")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    source: str
    title: str
    text: str
    score: float
    def __init__(self, source: _Optional[str] = ..., title: _Optional[str] = ..., text: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...
