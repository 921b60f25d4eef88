"""The one shape of the stack: whatever takes a job, or an attempt at it, and returns the call whose text has begun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from hedgerow.llm.v1 import llm_pb2
from services.gateway.policies.single_flight import Flight

if TYPE_CHECKING:
    from services.gateway.generation.call import Call

Kind = Literal["first", "hedge", "failover"]
J = TypeVar("J", contravariant=True)
Text = Flight[llm_pb2.GenerateResponse]  # where messages go, for everyone who reads them


class Generate(Protocol[J]):
    """A layer of the stack, or the call itself. Returns once the first text is there; raises `ServiceError`."""

    async def __call__(self, job: J, /) -> Call: ...
