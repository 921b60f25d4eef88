"""Writes an answer in the words of an API: the interface of the writers in this folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http import sse
from services.gateway.http.errors import ErrorResponse
from services.gateway.http.request_options import RequestOptions


class AnswerWriter(ABC):
    """Writes one answer, in a stream or in one piece."""

    @abstractmethod
    def chunk(self, event: pb.Event) -> bytes:
        """The bytes of an event in a stream; none for most."""

    @abstractmethod
    def gather(self, event: pb.Event) -> None:
        """Take an event of an answer that is written in one piece: the provider's, unless others say more."""

    @abstractmethod
    def end(self, final: pb.Final) -> bytes:
        """The end of a stream, with the report."""

    @abstractmethod
    def broken(self, failure: ErrorResponse) -> bytes:
        """The end of a stream that failed."""

    @abstractmethod
    def whole(self, final: pb.Final) -> dict[str, Any]:
        """The answer in one piece."""


class ChoiceWriter(AnswerWriter):
    """Writes the only answer, or one of several, in OpenAI's events."""

    @abstractmethod
    def end_choice(self, final: pb.Final, mesh_report: Mapping[str, Any] | None) -> bytes:
        """The finish of the choice in a stream, with the report where there is one."""

    @abstractmethod
    def end_all(self, used: chat_pb2.Usage, mesh_report: Mapping[str, Any]) -> bytes:
        """The last words of a stream after all choices: the usage and the report, where the usage is wanted."""

    def broken(self, failure: ErrorResponse) -> bytes:
        return sse.event(failure.openai())


# Makes the writer of one answer, whose id is unlike any other's; the second one of the choice with an index.
Write = Callable[[RequestOptions, str], AnswerWriter]
WriteChoice = Callable[[RequestOptions, str, int], ChoiceWriter]
