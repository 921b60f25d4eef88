"""The guard: what a request holds that a model shall not read, or not at all.

Secrets and personal data first, at once where the request is short: what holds any is for nobody else, so the cache is
not asked. Then prompt injections, piece by piece, while the cache's answer is on its way. Nothing leaves and no model
is asked before it is done. What is not done within the slice is late, and a setting says what then.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterator

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.draft import Draft
from services.gateway.answer.ledger import Running
from services.gateway.answer.screened import counted
from services.gateway.answer.stages.stage import BesideStage, Needs
from services.gateway.errors import GuardLate, GuardRefused
from services.gateway.guard import injection
from services.gateway.guard.checks import Checks
from services.gateway.guard.screen import Screen
from services.gateway.labels import Act, Degraded
from services.runtime.deadline import Deadline
from services.runtime.security.private_data import Finding, Names

_AT_ONCE = 8_192  # characters that are looked through before anything else is done
_CHUNK = 2_048  # characters that are looked through between two looks at the clock
_BARE = re.compile(r"(?<=[:,\[\s])(\[[a-z ]+ \d+\])(?=\s*[,}\]])")  # a name that stands where JSON has a number
_INSTRUCTING = (chat_pb2.ROLE_USER, chat_pb2.ROLE_TOOL)  # who may say what should not be obeyed


class GuardStage(BesideStage):
    """Looks through what is asked."""

    name, after = "guard", ("audio",)

    def __init__(self, draft: Draft):
        super().__init__(draft)
        assert draft.checks is not None  # else there is no such stage
        self._checks: Checks = draft.checks

    @classmethod
    def wanted(cls, needs: Needs) -> bool:
        return needs.guard

    def start(self) -> None:
        draft, ledger = self.draft, self.draft.ledger
        stage = ledger.begin(self.name)
        deadline = Deadline.after(stage.budget_s, ledger.clock)
        looking = _Looking(draft, self._checks, stage, deadline)
        long = sum(len(text) for _, text in _texts(draft)) > _AT_ONCE
        if self._checks.hides and not long:
            try:
                for _ in looking.for_private():
                    pass
            except GuardRefused:
                stage.outcome = pb.STAGE_OUTCOME_FAILED
                ledger.end(stage)
                raise
        if self._checks.hides and long:
            looking.keep_private(f"more than {_AT_ONCE} characters: nobody knows yet what it holds")
        if not long and self._checks.settings.injection == "off":
            ledger.end(stage)
            return
        draft.guarding = True
        self.begin(self._look(looking, stage, private=long and bool(self._checks.hides)))

    async def run(self) -> AsyncGenerator[None, None]:
        if self.work is None:
            return
        if self.draft.has_news and not self.work.done():
            await asyncio.sleep(0)  # most are done as soon as they begin
        if self.draft.has_news and not self.work.done():
            yield
        await self.draft.done(self.work)

    async def _look(self, looking: _Looking, stage: Running, *, private: bool) -> None:
        with self.draft.ledger.ending(stage):
            try:
                for _ in looking.for_private() if private else ():
                    await asyncio.sleep(0)
                for _ in looking.for_injections():
                    await asyncio.sleep(0)
            except _Late:
                self._late(stage)
        self.draft.guarding = False

    def _late(self, stage: Running) -> None:
        ledger, is_open = self.draft.ledger, self._checks.settings.late == "open"
        stage.outcome = pb.STAGE_OUTCOME_OVERRUN
        stage.detail = f"not done within {stage.budget_s * 1000:.0f} ms"
        ledger.decide(Act.GUARD_LATE, self.name, f"{stage.detail}: {'passed' if is_open else 'refused'}")
        if not is_open:
            raise GuardLate(f"guard: {stage.detail}", late="closed")
        ledger.degrade(Degraded.GUARD_LATE)


class _Late(Exception):
    """The time is over."""


class _Looking:
    """One look through a request, in steps. Each raises `GuardRefused` for what it finds, or `_Late`."""

    def __init__(self, draft: Draft, checks: Checks, stage: Running, deadline: Deadline):
        self._draft, self._checks, self._stage, self._deadline = draft, checks, stage, deadline
        self._names, self._found, self._hidden = Names(), Counter[str](), dict[str, str]()

    def for_private(self) -> Iterator[None]:
        """Secrets and personal data. In the end names stand for them in what a model reads."""
        for where, text in _texts(self._draft):
            shown = yield from self._shown(where, text)
            if shown != text:
                self._hidden[text] = shown if where != _ARGUMENTS else _as_json(text, shown)
        if self._hidden:
            self._draft.hide(self._hidden)
            self._tell(Act.GUARD_HID, counted(self._found))
            self.keep_private("it holds secrets or personal data")

    def for_injections(self) -> Iterator[None]:
        """Whether anybody wants to be obeyed; the latest first."""
        settings = self._checks.settings
        said = list(_said(self._draft)) if settings.injection != "off" else []
        for piece in (piece for text in reversed(said) for piece in injection.pieces(text)):
            self._in_time()
            rule, score = injection.by_pattern(piece), 0.0
            if not rule and (score := injection.probability(piece)) >= settings.injection_score:
                rule = injection.CLASSIFIER
            if rule:
                self._injected(rule, score)
                return
            yield

    def keep_private(self, why: str) -> None:
        """Have it shared with nobody."""
        draft = self._draft
        if not draft.private and draft.question.shareable:
            draft.ledger.decide(Act.GUARD_BYPASSED, "cache", f"{why}: neither looked up nor stored")
        draft.private = True

    def _shown(self, where: str, text: str) -> Generator[None, None, str]:
        screen, shown = Screen(self._checks.hides, names=self._names), list[str]()
        for at in range(0, len(text), _CHUNK):
            if len(text) > _CHUNK:
                self._in_time()
            released = screen.feed(text[at : at + _CHUNK])
            self._note(where, released.findings)
            shown.append(released.text)
            yield
        released = screen.close()
        self._note(where, released.findings)
        return "".join((*shown, released.text))

    def _note(self, where: str, findings: tuple[Finding, ...]) -> None:
        for finding in findings:
            if finding.kind in self._checks.refuses:
                self._refuse(finding.rule, f"{where} hold a {finding.label} ({finding.rule})")
            self._found[finding.rule] += 1

    def _injected(self, rule: str, score: float) -> None:
        told = f"injection, {rule}{f' {score:.2f}' if score else ''}"
        if self._checks.settings.injection == "note":
            self._tell(Act.GUARD_NOTED, told)
        else:
            self._refuse(rule, f"the request looks like a prompt injection ({rule})")

    def _refuse(self, rule: str, why: str) -> None:
        self._tell(Act.GUARD_REFUSED, rule)
        raise GuardRefused(f"guard: {why}", rule=rule)

    def _tell(self, act: Act, detail: str) -> None:
        self._stage.detail = "; ".join(filter(None, (self._stage.detail, detail)))
        self._draft.ledger.decide(act, "prompt", detail)

    def _in_time(self) -> None:
        if self._deadline.remaining() <= 0:
            raise _Late


_MESSAGES, _ARGUMENTS, _HEARD = "the messages", "the arguments of a call", "the recording"


def _texts(draft: Draft) -> Iterator[tuple[str, str]]:
    """What may hold what is private, and what that is. System messages are the application's own words."""
    for message in draft.asked.messages:
        if message.role == chat_pb2.ROLE_SYSTEM:
            continue
        yield _MESSAGES, message.content
        for call in message.tool_calls:
            yield _ARGUMENTS, call.arguments
    for line in draft.asked.context:
        yield _HEARD, line


def _said(draft: Draft) -> Iterator[str]:
    """What might want to be obeyed."""
    yield from draft.asked.context
    yield from (message.content for message in draft.asked.messages if message.role in _INSTRUCTING)


def _as_json(before: str, shown: str) -> str:
    """Arguments that are JSON stay JSON: a number that is hidden becomes a string."""
    if not _is_json(before) or _is_json(shown):
        return shown
    quoted = _BARE.sub(r'"\1"', shown)
    return quoted if _is_json(quoted) else json.dumps({"hidden": shown}, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
