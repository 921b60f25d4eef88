"""What a tool says, looked through before a model or a client reads it: it is text of strangers.

By the guard of the request's tenant, as what is asked: names stand for secrets and personal data, the same as in the
prompt; a result that holds what is refused is withheld as a whole, and the model is told that there is none. The slice
of the guard is the time for each result, beside that of its tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hedgerow.tool.v1 import tool_pb2
from services.gateway.answer.content_scanner import ContentScanner, Late, Refused, told
from services.gateway.answer.draft import Draft
from services.gateway.answer.stream_filter import counted
from services.gateway.guard.checks import Checks
from services.gateway.labels import Act, Degraded
from services.runtime.deadline import Deadline

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """What may be read of a result. `withheld`: why it is nothing, for people."""

    content: str = ""
    citations: Sequence[tool_pb2.Citation] = ()
    withheld: str = ""


async def look_through(draft: Draft, name: str, content: str, citations: Sequence[tool_pb2.Citation]) -> Seen:
    """The result of the tool `name` as its readers get it."""
    checks, ledger = draft.privacy.checks, draft.ledger
    if checks is None or not checks.asks:
        return Seen(content, citations)
    within_s = ledger.plan["guard"].budget_ms / 1000
    looking = ContentScanner(checks, draft.privacy.names, Deadline.after(within_s, ledger.clock))
    try:
        seen = await _stepped(_look(draft, name, looking, checks, Seen(content, citations)))
    except Refused as refused:
        ledger.decide(Act.GUARD_REFUSED, name, refused.rule)
        return Seen(withheld=f"it holds {refused.what}")
    except Late:
        is_open = checks.settings.late == "open"
        late = f"not done within {within_s * 1000:.0f} ms"
        ledger.decide(Act.GUARD_LATE, name, f"{late}: {'passed' if is_open else 'withheld'}")
        if not is_open:
            return Seen(withheld=f"the guard was {late}")
        ledger.degrade(Degraded.GUARD_LATE)
        return Seen(content, citations)
    if looking.found:
        ledger.decide(Act.GUARD_HID, name, counted(looking.found))
    return seen


def _look(draft: Draft, name: str, looking: ContentScanner, checks: Checks, came: Seen) -> Generator[None, None, Seen]:
    """Its steps. Raises `Refused` and `Late`."""
    shown = came
    if checks.hides:
        content = yield from looking.without_private(came.content)
        citations = list[tool_pb2.Citation]()
        for each in came.citations:
            source, title, text = yield from _all(looking, (each.source, each.title, each.text))
            citations.append(tool_pb2.Citation(source=source, title=title, text=text, score=each.score))
        shown = Seen(content, citations)
    if checks.settings.injection != "off":
        said = (came.content, *(text for each in came.citations for text in (each.title, each.text)))
        rule, score = yield from looking.for_injections(dict.fromkeys(said))
        if rule and checks.settings.injection == "refuse":
            raise Refused(rule, f"what looks like a prompt injection ({rule})")
        if rule:
            draft.ledger.decide(Act.GUARD_NOTED, name, told(rule, score))
    return shown


def _all(looking: ContentScanner, texts: Sequence[str]) -> Generator[None, None, list[str]]:
    shown = list[str]()
    for text in texts:
        shown.append((yield from looking.without_private(text)))
    return shown


async def _stepped(steps: Generator[None, None, T]) -> T:
    """Its result. Others have their turn between its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)
