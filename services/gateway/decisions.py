"""What the policies decided and what was changed, with reasons: for the last event, the trace, the HTTP API and the
metrics. `make docs` writes the tables of the words from here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from prometheus_client import Counter

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.labels import Act, Label, Policy
from services.gateway.settings.group import LONGEST_MS
from services.runtime.deadline import Clock
from services.runtime.errors import ServiceError

_DECISIONS = Counter("hedgerow_decisions", "Decisions of policies.", ["policy", "action"])
_decisions = cache(_DECISIONS.labels)


class Backend(Protocol):
    """A backend: callers see its `name`, operators its `address` too."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...


class Decision(NamedTuple):
    """`action` is a stable word, `subject` a stage, a model or a backend, `reason` for people; `at` on the clock.
    `address` is the backend's, and for operators alone."""

    policy: Policy
    action: str
    subject: str
    reason: str
    at: float
    address: str = ""


def decided(act: Act, subject: str, reason: str) -> str:
    """A single decision before a refusal, as `Decisions.explain` writes it."""
    _count(act)
    return _alone(act, subject, reason)


def _count(act: Act) -> None:
    _decisions(act.value.policy, act.value.action).inc()


@lru_cache(maxsize=1_000)
def _alone(act: Act, subject: str, reason: str) -> str:
    """Nearly all calls of a flood have the same."""
    said = act.value
    return json.dumps([_to_dict(Decision(said.policy, said.action, subject, reason, at=0), opened=0)])


def _to_dict(made: Decision, opened: float) -> dict[str, Any]:
    return {
        "policy": made.policy,
        "action": made.action,
        "subject": made.subject,
        "reason": made.reason,
        "at_ms": round(max(0.0, made.at - opened) * 1000, 3),
    }


class Decisions(list[Decision]):
    """The decisions of a request, in the order in which they were made."""

    def __init__(self, clock: Clock = time.monotonic):
        super().__init__()
        self._clock = clock

    def add(self, act: Act, subject: str | Backend, reason: str) -> None:
        said = act.value
        name, address = (subject, "") if isinstance(subject, str) else (subject.name, subject.address)
        self.append(Decision(said.policy, said.action, name, reason, self._clock(), address))
        _count(act)

    def to_dicts(self, opened: float) -> list[dict[str, Any]]:
        """The decisions in the contract's form, with times in milliseconds since `opened`. Those of a generation that
        another request started may be older than this request: their time is 0."""
        return [_to_dict(made, opened) for made in sorted(self, key=attrgetter("at"))]

    def explain(self, error: ServiceError, opened: float, trace_id: str) -> None:
        """Put the decisions before an error into its metadata."""
        error.metadata["trace_id"] = trace_id
        if self:
            error.metadata["decisions"] = json.dumps(self.to_dicts(opened))


class By(Label):
    """The level that asked for a change (`Change.by`)."""

    REQUEST = "request", "the request"
    TENANT = "tenant", "the settings of its tenant"
    MESH = "mesh", "the mesh file or its profile, or settings of a service"


class Changed(Label):
    """The kinds of changes (`Change.what`)."""

    BUDGET = "budget", "the time is limited; `from` has a longer time that was requested"
    FIRST_TOKEN = "first_token_budget", "the time to the first text is limited"
    MAX_TOKENS = "max_tokens", "the answer's tokens are limited; `from` has a higher limit that was requested"
    CACHE = "cache", "a cached answer was sent: `exact`, `semantic` or `stale`"
    SHARED = "shared", "the answer is shared with an equal request; the first one to end has its cost"
    MODEL = "model", "another model than the chosen one answered"
    TEMPLATE = "template", "the fixed text was sent"
    PROMPT_COMPRESSED = "prompt_compressed", "the prompt was compressed"
    CONVERSATION_CUT = "conversation_cut", "the oldest turns were left out"
    CONVERSATION_SUMMARIZED = "conversation_summarized", "the oldest turns were summarized"
    FIELD_OMITTED = "field_omitted", "a field that the model's API lacks was left out; `from` names it"
    SYSTEM_PROMPT = "system_prompt", "a system prompt of the gateway was added"
    TOOLS = "tools", "mesh tools were called or offered"
    PICTURES = "pictures", "the model received image labels as text"
    RECORDING = "recording", "the model received a transcript"
    PROMPT_MASKED = "prompt_masked", "secrets or personal data in the prompt were masked"
    ANSWER_MASKED = "answer_masked", "findings in the answer were masked"
    ANSWER_ENDED = "answer_ended", "the guard ended the answer"
    FORM_CHECKED = "form_checked", "the answer was compared with `response_format`"
    FORM_REPAIRED = "form_repaired", "the model repaired an answer that did not match"


class TimeLimit(NamedTuple):
    """A limit of time: of the whole answer, or to its first text."""

    what: Changed
    ms: float


_OF_ACTS: Mapping[Act, Changed] = {
    Act.FALLBACK_TEMPLATE: Changed.TEMPLATE,
    Act.GUARD_MASKED_INPUT: Changed.PROMPT_MASKED,
    Act.GUARD_MASKED: Changed.ANSWER_MASKED,
    Act.GUARD_ENDED: Changed.ANSWER_ENDED,
    Act.FORM_VALID: Changed.FORM_CHECKED,
    Act.FORM_CONSTRAINED: Changed.FORM_CHECKED,
    Act.FORM_FAILED: Changed.FORM_CHECKED,
    Act.FORM_UNCHECKED: Changed.FORM_CHECKED,
    Act.FORM_REPAIRED: Changed.FORM_REPAIRED,
}
_COUNTED = (Changed.PROMPT_MASKED, Changed.ANSWER_MASKED, Changed.ANSWER_ENDED)  # whose reason is what was found


class Changes(list[pb.Change]):
    """The changes of a request, in their order. `by`: the level that asked for each, where admission knows it; `origin`
    gives that of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.by: dict[Changed, By] = {}
        self.origin: Callable[[Changed], By] = lambda _: By.MESH
        self._tokens: pb.Change | None = None  # the limit of the answer
        self._most = 0

    def add(self, what: Changed, *, before: str = "", after: str = "", by: By | None = None) -> pb.Change:
        """Note a change, once: what is the same again says nothing new."""
        change = pb.Change(what=what, before=before, after=after, by=by or self._by(what))
        if change not in self:
            self.append(change)
        return change

    def take(self, act: Act, reason: str) -> None:
        """Note what a policy did, where that changes the request or the answer."""
        if act is Act.FALLBACK_STALE:
            self.add(Changed.CACHE, after="stale", by=By.MESH)
        elif what := _OF_ACTS.get(act):
            found = reason if what in _COUNTED else act.value.action if what is Changed.FORM_CHECKED else ""
            self.add(what, after=found)

    def limit_time(self, budget_ms: float, asked_ms: float, by: By, *, reported: bool = True) -> None:
        """The answer has so long, in milliseconds; `asked_ms`: what the request wanted, 0 where it did not say. Without
        `reported` the limit alone is not reported as a change."""
        self.by[Changed.BUDGET] = by
        if reported and budget_ms < LONGEST_MS:  # clients wait no longer than that
            before = milliseconds(asked_ms) if asked_ms > budget_ms else ""
            self.add(Changed.BUDGET, before=before, after=milliseconds(budget_ms))

    def limit_first_text(self, limit_ms: float, budget_ms: float, by: By) -> None:
        """The first text has so long, of an answer that has `budget_ms`; infinite: no limit."""
        self.by[Changed.FIRST_TOKEN] = by
        if limit_ms < budget_ms:
            self.add(Changed.FIRST_TOKEN, after=milliseconds(limit_ms))

    def limit_tokens(self, most: int, by: By, asked: int = 0) -> None:
        """The answer has at most so many tokens; `asked`: what the request wanted, 0 where it did not say."""
        if most and (not self._most or most < self._most):
            before = f"{asked} tokens" if asked else ""
            self._tokens, self._most = self.add(Changed.MAX_TOKENS, before=before, after=f"{most} tokens", by=by), most

    def add_prompt(self, report: pb.PromptReport) -> None:
        """Note the changes of the prompt, once its tokens are counted."""
        if report.diet:
            alone = not (report.dropped_turns or report.system)  # else they count all of it
            before, after = report.tokens_before, report.tokens_after
            known = alone and before and after
            self.add(
                Changed.PROMPT_COMPRESSED,
                before=f"{before} tokens" if known else "",
                after=f"{after} tokens" if known else "",
            )
        if report.dropped_turns:
            what = Changed.CONVERSATION_SUMMARIZED if report.summary == "kept" else Changed.CONVERSATION_CUT
            before, after = report.turns, report.turns - report.dropped_turns
            self.add(what, before=f"{before} turns", after=f"{after} turns")
        if report.system:
            self.add(Changed.SYSTEM_PROMPT, after=report.system)

    def add_media(self, pictures: int, transcript: str) -> None:
        """Note that the model received texts in place of pictures and a recording."""
        if pictures:
            self.add(Changed.PICTURES, before=f"{pictures} picture{'s' * (pictures > 1)}", after="labels")
        if transcript:
            self.add(Changed.RECORDING, after="text")

    def cut(self, reason: int, limit: TimeLimit, written: int, *, stored: bool) -> pb.Change | None:
        """The limit of the gateway's or a model service's that has ended the answer; None: it is the model's own end,
        or that of the request's own `max_tokens`. `limit`: the one of time that was over. `written`: its tokens, which
        are not known of a `stored` one."""
        if reason == chat_pb2.FINISH_REASON_BUDGET:
            return pb.Change(what=limit.what, after=milliseconds(limit.ms), by=self._by(limit.what))
        if reason == chat_pb2.FINISH_REASON_LENGTH and self._tokens and (stored or written >= self._most):
            return self._tokens
        return None

    def _by(self, what: Changed) -> By:
        return self.by.get(what) or self.origin(what)


def describe(change: pb.Change) -> str:
    """A change for people: `prompt_compressed: 812 tokens → 640 tokens, by tenant`."""
    values = " → ".join(filter(None, (change.before, change.after)))
    return f"{change.what}: {values}, by {change.by}" if values else f"{change.what}, by {change.by}"


def milliseconds(ms: float) -> str:
    """A time for people: `640 ms`."""
    return f"{ms:.0f} ms"
