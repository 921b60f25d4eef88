"""Which answers the cache may store, and the pace at which a stored answer is sent."""

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
    """Whether the model that answered is not the one of this name that the question was identified for: during an
    exchange, its service and the table of the router change one after the other. `identities`: of all models, by the
    table at that time."""
    writer = next((item.finish.identity for item in generation.text.items[-1:]), "")
    return bool(writer and identities) and f"{name}={writer}" not in identities.split()


def is_storable(final: pb.Final, asked: chat_pb2.Sampling) -> bool:
    """Whether an answer is new, complete and not degraded. An answer that was cut by another limit than the request's
    own is not complete: the key of the question does not have that limit."""
    fresh = final.cache.verdict in (pb.CACHE_VERDICT_MISS, pb.CACHE_VERDICT_UNAVAILABLE)
    ended = final.finish_reason == chat_pb2.FINISH_REASON_STOP
    as_asked = final.finish_reason == chat_pb2.FINISH_REASON_LENGTH and (
        0 < asked.max_tokens <= final.usage.completion_tokens
    )
    undegraded = all(label in LOCAL for label in final.degraded)
    return fresh and (ended or as_asked) and undegraded and bool(final.text.strip())


async def may_keep(text: str, hides: Sequence[Rule], decisions: Decisions) -> bool:
    """Whether an answer holds no private data. The event loop runs between the parts of a long one."""
    if await holds(text, hides):
        note_private(decisions)
        return False
    return True


def note_private(decisions: Decisions) -> None:
    """Record why an answer is not stored."""
    decisions.add(Act.GUARD_BYPASSED, "cache", "the answer holds secrets or personal data")


def paced(text: str, per_s: float, within_s: float) -> Iterator[tuple[float, str]]:
    """Pieces of a text, each with its due time in seconds after the first: `per_s` characters a second, or faster so
    that the last one is due by `within_s`."""
    if per_s * within_s < len(text):
        per_s = len(text) / within_s if within_s > 0 else float("inf")
    size = int(min(max(1, per_s * _EVERY_S), max(1, len(text))))
    for at in range(0, len(text), size):
        yield at / per_s, text[at : at + size]
