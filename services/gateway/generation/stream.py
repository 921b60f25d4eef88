"""The one shape of the stack: whatever takes a job and returns a text that has begun."""

from __future__ import annotations

from typing import Literal, Protocol, TypeVar

from hedgerow.llm.v1 import llm_pb2
from services.gateway.policies.single_flight import Flight
from services.gateway.upstream.fleet import Pool, Replica
from services.runtime.errors import ServiceError

Kind = Literal["first", "hedge", "failover"]
J = TypeVar("J", contravariant=True)
Text = Flight[llm_pb2.GenerateResponse]  # where messages go, for everyone who reads them


class TextStream(Protocol):
    """A text whose first message is here. It holds a place, a breaker's permit and a connection, until one of the
    others after `pour` gives them back."""

    pool: Pool
    replica: Replica
    kind: Kind

    def age_s(self) -> float:
        """Since it was sent."""
        ...

    async def pour(self, text: Text) -> None:
        """Hand on every message as it comes, the first and the last included. Raises what it broke with."""
        ...

    async def finished(self) -> None:
        """The text is whole: book it, and wait for the call's own end."""
        ...

    def failed(self, problem: ServiceError) -> None:
        """It broke."""
        ...

    def lose(self) -> None:
        """Another's first text was faster."""
        ...

    def leave(self) -> None:
        """Nobody reads it any more. Has no effect on one that has ended."""
        ...


class Generate(Protocol[J]):
    """A layer of the stack, or the call itself. Returns once the first text is there; raises `ServiceError`."""

    async def __call__(self, job: J, /) -> TextStream: ...
