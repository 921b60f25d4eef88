"""The request to a model and the reading of its answer, for every stage that asks one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.question import prompt_tokens
from services.gateway.answer.draft import Draft
from services.gateway.answer.inputs import in_tools
from services.gateway.answer.ledger import Running
from services.gateway.answer.unchanged_fields import own_words
from services.gateway.decisions import Changed, Decisions
from services.gateway.generation.job import Job, Report
from services.gateway.generation.shared import GenerationReading
from services.gateway.policies.slot import SlotRequest, score
from services.gateway.upstream import spending
from services.gateway.upstream.calls import whose
from services.runtime import telemetry
from services.runtime.deadline import Deadline

_SAID = ("delta", "reasoning", "tool_call")


def question(draft: Draft, *changed: str) -> llm_pb2.GenerateRequest:
    """The request to a model. `changed`: fields of the original body that the stage will replace."""
    request = draft.question.request
    given, choice = _tools(draft)
    tools = in_tools(given, draft.inputs.hidden)
    if choice is None and request.HasField("tool_choice"):
        changed = (*changed, "tool_choice")
    if tools and not request.tools:
        changed = (*changed, "tools", "tool_choice")
    if tools is not given:
        changed = (*changed, "tools")
    return llm_pb2.GenerateRequest(
        messages=draft.inputs.for_model(),
        sampling=request.sampling if request.HasField("sampling") else None,
        response_format=request.response_format if request.HasField("response_format") else None,
        prefix=draft.inputs.hidden.get(request.prefix, request.prefix),
        cache_salt=draft.tenant.prefix_salt,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls if request.HasField("parallel_tool_calls") else None,
        original=own_words(draft, changed),
        most_tokens=draft.tenant.max_tokens,
        omit_untranslated=draft.omits,
    )


def _tools(draft: Draft) -> tuple[Sequence[chat_pb2.Tool], chat_pb2.ToolChoice | None]:
    """The tools for the model that answers: those of the caller, and none of the mesh. Where the conversation holds
    calls of mesh tools, the mesh tools are listed, because some providers require it, with a `tool_choice` of none."""
    request, equipment = draft.question.request, draft.equipment
    choice = request.tool_choice if request.HasField("tool_choice") else None
    if equipment is None or not equipment.offered:
        return request.tools, choice
    if choice and (draft.inputs.called or not request.tools or choice.name in equipment.offered):
        choice = None  # it was for an earlier step
    if draft.inputs.called and not request.tools:
        return equipment.told(), chat_pb2.ToolChoice(mode=chat_pb2.TOOL_MODE_NONE)
    return request.tools, choice


def job(
    draft: Draft, asked: llm_pb2.GenerateRequest, models: Sequence[str], stage: Running, *, first_text: bool = True
) -> Job:
    """The job for a request, within the budget of `stage`. `first_text`: whether its first text is that of the
    answer."""
    ledger, tenant, request = draft.ledger, draft.tenant, draft.question.request
    deadline, batch = Deadline.after(stage.budget_s, ledger.clock), draft.placed is not None
    rank = score(premium=tenant.premium, realtime=request.realtime, attempt=request.attempt, batch=batch)
    return Job(
        asked,
        models,
        deadline,
        SlotRequest(rank, tenant.name, tenant.weight, deadline, draft.placed),
        Deadline(ledger.opened + ledger.plan.first_text_ms / 1000, ledger.clock) if first_text else deadline,
        Report(Decisions(ledger.clock)),
        (*telemetry.propagate(stage.span), whose(draft.tenant.name)),  # tenants share the work of a service fairly
        once=request.single_attempt,
        others_when_late="smaller" in draft.backends.fallbacks.order,
        known=draft.identity.known,
    )


def read(draft: Draft, key: bytes, work: Job, stage: Running) -> GenerationReading:
    """Start the job, or join a generation of the same key, whose prompt has the same turns."""
    if key and (dropped := draft.ledger.final.prompt.dropped_turns):
        key += f"/without {dropped} turns".encode()
    reading = draft.backends.models.read(key, work, stage.budget_s)
    if reading.joined:
        draft.ledger.decisions += work.report.decisions
        draft.ledger.changes.add(Changed.SHARED)
        if draft.placed:  # a joined request needs no place of its own
            draft.placed()
    return reading


def settle(draft: Draft, reading: GenerationReading) -> None:
    """Stop reading, and add the generation to the ledger. All readers get the decisions of the policies. The cost is
    known when the generation is over, and the first reader to settle after that is charged."""
    ledger, generation = draft.ledger, reading.generation
    reading.reader.leave()
    ledger.decisions += generation.report.decisions
    for name in generation.text.items[-1].finish.omitted if generation.text.items else ():
        ledger.changes.add(Changed.FIELD_OMITTED, before=name)
    if generation.over:
        asked = generation.job.request
        estimate = partial(prompt_tokens, asked.messages, asked.tools)
        bill = spending.book(generation.report.unbilled(), draft.backends.routes, estimate)
        ledger.billed_tokens += bill.tokens
        ledger.final.cost_usd += bill.usd


@dataclass(slots=True)
class Tried:
    """The answer of a model so far."""

    pieces: list[str] = field(default_factory=list)  # of the text
    finish_reason: chat_pb2.FinishReason = chat_pb2.FINISH_REASON_UNSPECIFIED
    logprobs: list[float] = field(default_factory=list)  # of its tokens, as far as the model reports them
    usage: chat_pb2.Usage = field(default_factory=chat_pb2.Usage)
    written: int = 0  # tokens

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def take(self, item: llm_pb2.GenerateResponse) -> None:
        """Add a message."""
        self.pieces.append(item.text)
        self.logprobs += [token.logprob for token in item.logprobs]
        self.written += item.tokens
        if item.HasField("finish"):
            self.finish_reason = item.finish.reason
            self.usage.CopyFrom(item.finish.usage)


Say = Callable[[Sequence[llm_pb2.GenerateResponse]], Awaitable[bool]]


async def hear(draft: Draft, reading: GenerationReading, tried: Tried, say: Say | None = None) -> None:
    """Read into `tried` until the model ends, and settle. `say` is called with each new batch of messages, and returns
    whether to stop."""
    try:
        while not tried.finish_reason and (items := await reading.reader.take()):
            for item in items:
                tried.take(item)
            if say and await say(items):
                return
    finally:
        settle(draft, reading)


async def hear_all(draft: Draft, reading: GenerationReading) -> Tried:
    """Read the whole answer."""
    tried = Tried()
    await hear(draft, reading, tried)
    return tried


async def write_message(draft: Draft, item: llm_pb2.GenerateResponse, *, relays: bool = False) -> None:
    """Write one message to the ledger and the client: reasoning before the text, calls after it. `relays`: the client
    reads the provider's own events, unless the text is guarded or replaces another one."""
    with draft.writer.together() as start:
        await _write(draft, item)
        if relays and item.relayed and not (draft.voice.screens or draft.voice.replacing):
            _relay(draft.writer.events, item.relayed, start)


async def _write(draft: Draft, item: llm_pb2.GenerateResponse) -> None:
    ledger, tokens = draft.ledger, item.tokens
    if item.reasoning:
        spent, tokens = (0, tokens) if item.text else (tokens, 0)
        await draft.voice.think(item.reasoning, spent)
    if item.text:
        await draft.voice.say(item.text, tokens, item.logprobs)
    if item.tool_calls:
        await draft.voice.release()
    if item.tool_calls and not ledger.finish_reason:
        ledger.written.add_calls(item.tool_calls, 0 if item.text else tokens)
        draft.writer.write(*(pb.Event(tool_call=delta) for delta in item.tool_calls))


def _relay(events: list[pb.Event], relayed: Sequence[bytes], start: int) -> None:
    """Send the provider's events, which repeat `events` from `start` on."""
    for event in events[start:]:
        event.in_relayed = event.WhichOneof("kind") in _SAID  # another stage may have written an event meanwhile
    events.insert(start, pb.Event(relayed=pb.Relayed(events=relayed)))
