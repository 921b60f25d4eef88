"""The guard of a request: refuses it, or masks texts that a model shall not read.

Secrets and personal data are detected first, at once where the request is short. A request that holds any is private,
so the cache is not asked. Prompt injections follow, piece by piece, while the cache looks up the question. No text is
sent and no model is asked before the guard is done. Where its slice is too short, the setting `late` passes or refuses
the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NoReturn

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.context import RequestContext
from services.gateway.answer.ledger import Running
from services.gateway.answer.original_body import is_of_conversation, texts_of, unread_texts
from services.gateway.answer.stages.stage import AnswerStage, Work
from services.gateway.answer.stream_filter import counted
from services.gateway.errors import GuardLate, GuardRefused
from services.gateway.guard.checks import NOTHING, Checks
from services.gateway.guard.screen import EACH, ContentScanner, Late, RefusedText, describe_injection
from services.gateway.labels import Act, Degraded
from services.runtime.aside import aside, give_way, size_in, size_of
from services.runtime.deadline import Deadline

_AT_ONCE = 8_192  # characters; shorter requests are checked for private data before other stages run
_Fields = Sequence[tuple[str, str]]  # (place, text) of fields of the original body that the gateway does not read
_BARE_NAME = re.compile(r"(?<=[:,\[\s])(\[[a-z ]+ \d+\])(?=\s*[,}\]])")  # a name that stands where JSON has a number
_INSTRUCTING = (chat_pb2.ROLE_USER, chat_pb2.ROLE_TOOL)  # roles whose texts may be injections


class GuardStage(AnswerStage):
    """Checks the texts of a request."""

    name, after = "guard", ("audio",)

    def __init__(self, context: RequestContext):
        super().__init__(context)
        self._checks = context.privacy.checks or NOTHING

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        checks = question.settings.guard
        return checks is not None and checks.asks

    async def start(self) -> Work | None:
        context, ledger = self.context, self.context.ledger
        original = context.question.request.original
        unread: Callable[[], _Fields] = partial(list, unread_texts(original, context.privacy.also_checked))
        fields = await aside(context.tenant.name, _size_of_unread(original), unread, ledger.remaining())
        stage = ledger.begin(self.name)  # now: a client that left meanwhile would leave its span open
        deadline = Deadline.after(stage.budget_s, ledger.clock)
        request_checks = _RequestChecks(context, self._checks, stage, deadline, fields)
        long = _is_long(text for _, text in chain(_private_texts(context), fields))
        if self._checks.masks and not long and not self._check_private_at_once(request_checks, stage):
            return None
        if self._checks.masks and long:
            request_checks.keep_private(f"more than {_AT_ONCE} characters: not checked yet")
        if not long and self._checks.settings.injection == "off":
            ledger.end(stage)
            return None
        context.privacy.guarded.clear()
        return self._check_request(request_checks, stage, private=long and bool(self._checks.masks))

    def _check_private_at_once(self, request_checks: _RequestChecks, stage: Running) -> bool:
        """Detect private data without a pause. Returns whether the stage goes on; else it is late and has ended. Raises
        `GuardRefused` and `GuardLate`."""
        try:
            for _ in request_checks.for_private():
                pass
        except (GuardRefused, Late) as problem:
            with self.context.ledger.ending(stage):
                if isinstance(problem, GuardRefused):
                    raise
                request_checks.keep_private("not checked in time")
                self._late(stage)
            return False
        return True

    async def _check_request(self, request_checks: _RequestChecks, stage: Running, *, private: bool) -> None:
        tenant = self.context.tenant.name
        with self.context.ledger.ending(stage):
            try:
                for _ in request_checks.for_private() if private else ():
                    await give_way(tenant)
                for _ in request_checks.for_injections():
                    await give_way(tenant)
            except Late:
                self._late(stage)
        self.context.privacy.guarded.set()

    def _late(self, stage: Running) -> None:
        ledger, is_open = self.context.ledger, self._checks.settings.late == "open"
        stage.outcome = pb.STAGE_OUTCOME_OVERRUN
        stage.detail = f"not done within {stage.budget_s * 1000:.0f} ms"
        ledger.decide(Act.GUARD_LATE, self.name, f"{stage.detail}: {'passed' if is_open else 'refused'}")
        if not is_open:
            raise GuardLate(f"guard: {stage.detail}", late="closed")
        ledger.degrade(Degraded.GUARD_LATE)


class _RequestChecks:
    """The checks of one request, in steps, between which the caller may run other tasks. Each raises `GuardRefused` for
    a finding that is not masked, or `Late`."""

    def __init__(self, context: RequestContext, checks: Checks, stage: Running, deadline: Deadline, fields: _Fields):
        self._context, self._checks, self._stage, self._fields = context, checks, stage, fields
        self._scanner, self._masked_texts = ContentScanner(checks, context.privacy.names, deadline), dict[str, str]()
        self._masked_fields = dict[str, str]()  # outside of the conversation

    def for_private(self) -> Iterator[None]:
        """Detect secrets and personal data, and replace them by names for models."""
        for where, text in _private_texts(self._context):
            shown = yield from self._without_private(where, text)
            if shown != text:
                self._masked_texts[text] = shown if where not in _JSON_TEXTS else _as_json(text, shown)
        for place, text in self._fields:
            shown = yield from self._without_private(_FIELDS, text)
            if shown != text:
                (self._masked_texts if is_of_conversation(place) else self._masked_fields)[text] = shown
        if self._masked_texts or self._masked_fields:
            self._context.inputs.mask(self._masked_texts, self._masked_fields)
            self._record(Act.GUARD_MASKED_INPUT, counted(self._scanner.found))
            self.keep_private("it holds secrets or personal data")

    def _without_private(self, where: str, text: str) -> Generator[None, None, str]:
        try:
            return (yield from self._scanner.without_private(text))
        except RefusedText as refused:
            self._refuse(refused.rule, f"{where} hold {refused.what}")

    def for_injections(self) -> Iterator[None]:
        """Detect prompt injections, in the latest text first."""
        if self._checks.settings.injection == "off":
            return
        rule, score = yield from self._scanner.for_injections(
            reversed(list(_instructing_texts(self._context, self._fields)))
        )
        if rule and self._checks.settings.injection == "note":
            self._record(Act.GUARD_NOTED, describe_injection(rule, score))
        elif rule:
            self._refuse(rule, f"the request looks like a prompt injection ({rule})")

    def keep_private(self, why: str) -> None:
        """Keep the answer out of the cache and away from other callers."""
        context = self._context
        if not context.privacy.private and context.question.shareable:
            context.ledger.decide(Act.GUARD_BYPASSED, "cache", f"{why}: neither looked up nor stored")
        context.privacy.private = True

    def _refuse(self, rule: str, why: str) -> NoReturn:
        self._record(Act.GUARD_REFUSED, rule)
        raise GuardRefused(f"guard: {why}", rule=rule)

    def _record(self, act: Act, detail: str) -> None:
        self._stage.detail = "; ".join(filter(None, (self._stage.detail, detail)))
        self._context.ledger.decide(act, "prompt", detail)


_MESSAGES, _ARGUMENTS, _RECORDING = "the messages", "the arguments of a call", "the recording"
_FIELDS, _PREFIX, _TOOLS, _PARAMETERS = "the other fields", "the prefix", "the tools", "the parameters of a tool"
_JSON_TEXTS = (_ARGUMENTS, _PARAMETERS)


def _private_texts(context: RequestContext) -> Iterator[tuple[str, str]]:
    """The texts that may hold private data, each with its kind. System messages, a prefix and tools are the
    application's own texts and are left out, unless the setting `also` names them."""
    also = context.privacy.also_checked
    for message in context.inputs.asked.messages:
        if message.role == chat_pb2.ROLE_SYSTEM and "system" not in also:
            continue
        yield _MESSAGES, message.content
        for call in message.tool_calls:
            yield _ARGUMENTS, call.arguments
    for line in context.inputs.asked.context:
        yield _RECORDING, line
    if "prefix" in also:
        yield _PREFIX, context.question.request.prefix
    for tool in _tools(context):
        yield _TOOLS, tool.description
        yield _PARAMETERS, tool.parameters


def _instructing_texts(context: RequestContext, fields: _Fields) -> Iterator[str]:
    """The texts that may hold injections. Of other fields, of parts that are left for a provider and of the parameters
    of a tool, only texts of several words: documents for the model, for example."""
    also = context.privacy.also_checked
    for tool in _tools(context):
        yield from (text for text in _strings_of(tool.parameters) if " " in text)
        yield tool.description
    yield from (text for place, text in fields if " " in text and _may_instruct(place))
    yield from context.inputs.asked.context
    roles = (*_INSTRUCTING, chat_pb2.ROLE_SYSTEM) if "system" in also else _INSTRUCTING
    yield from (message.content for message in context.inputs.asked.messages if message.role in roles)
    if "prefix" in also:
        yield context.question.request.prefix


def _size_of_unread(original: chat_pb2.Original) -> int:
    """The size of the fields that the gateway does not read, for `aside`: each takes the time of two objects."""
    count = len(original.untranslated)
    return max(size_in(original.body), size_of(2 * count)) if count else 0


def _is_long(texts: Iterable[str]) -> bool:
    """Whether they have more than `_AT_ONCE` characters together, with `EACH` for each text."""
    left = _AT_ONCE
    return any((left := left - len(text) - EACH) < 0 for text in texts)


def _tools(context: RequestContext) -> Sequence[chat_pb2.Tool]:
    """The tools for the model, those of the caller and of the mesh, where the setting `also` names tools."""
    if "tools" not in context.privacy.also_checked:
        return ()
    return [*context.question.request.tools, *(context.request_tools.descriptions() if context.request_tools else ())]


def _strings_of(parameters: str) -> Iterator[str]:
    try:
        yield from texts_of(json.loads(parameters or "{}"))
    except (ValueError, RecursionError):  # parameters of a tool source may be no JSON
        yield parameters


def _may_instruct(place: str) -> bool:
    """Whether a field may hold instructions: whole parts are like messages; other fields of a conversation hold model
    output or names."""
    return place.endswith("]") or not is_of_conversation(place)


def _as_json(before: str, shown: str) -> str:
    """Keep arguments valid JSON: a masked number becomes a string."""
    if not _is_json(before) or _is_json(shown):
        return shown
    quoted = _BARE_NAME.sub(r'"\1"', shown)
    return quoted if _is_json(quoted) else json.dumps({"hidden": shown}, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
