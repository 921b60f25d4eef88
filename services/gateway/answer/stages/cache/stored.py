"""Which answers the cache may keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.decisions import Decisions
from services.gateway.generation.shared import Generation
from services.gateway.guard.screen import holds
from services.gateway.labels import LOCAL, Act
from services.runtime.security.private_data import Rule

_EVERY_S = 0.05  # seconds between pieces: shorter pauses are not visible, and each message costs


def is_of_another(name: str, generation: Generation, identities: str) -> bool:
    """Whether the model that has answered is another one of this name than the question was identified for: while it
    is exchanged, its service and the router's table change one after the other. `identities`: of all models, by the
    table of then."""
    writer = next((item.finish.identity for item in generation.text.items[-1:]), "")
    return bool(writer and identities) and f"{name}={writer}" not in identities.split()


def is_storable(final: pb.Final, asked: chat_pb2.Sampling) -> bool:
    """Only what is new, complete and undegraded is kept. An answer that another limit than the request's own has cut is
    not complete: nothing of the question says that it must end there."""
    fresh = final.cache.verdict in (pb.CACHE_VERDICT_MISS, pb.CACHE_VERDICT_UNAVAILABLE)
    ended = final.finish_reason == chat_pb2.FINISH_REASON_STOP
    as_asked = final.finish_reason == chat_pb2.FINISH_REASON_LENGTH and (
        0 < asked.max_tokens <= final.usage.completion_tokens
    )
    undegraded = all(label in LOCAL for label in final.degraded)
    return fresh and (ended or as_asked) and undegraded and bool(final.text.strip())


async def may_keep(text: str, hides: Sequence[Rule], decisions: Decisions) -> bool:
    """Whether an answer holds nothing private. The event loop runs between the parts of a long one."""
    if await holds(text, hides):
        note_private(decisions)
        return False
    return True


def note_private(decisions: Decisions) -> None:
    """Why an answer is not kept."""
    decisions.add(Act.GUARD_BYPASSED, "cache", "the answer holds secrets or personal data")


def paced(text: str, per_s: float, within_s: float) -> Iterator[tuple[float, str]]:
    """Pieces of a text, each with when it is due, in seconds after the first: `per_s` characters a second, or as many
    more as it takes for the last one to be due `within_s`."""
    if per_s * within_s < len(text):
        per_s = len(text) / within_s if within_s > 0 else float("inf")
    size = int(min(max(1, per_s * _EVERY_S), max(1, len(text))))
    for at in range(0, len(text), size):
        yield at / per_s, text[at : at + size]
