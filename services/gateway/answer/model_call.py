"""The request to a model and the reading of its answer, for every stage that asks one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.question import prompt_tokens
from services.gateway.answer.context import RequestContext
from services.gateway.answer.inputs import mask_tools
from services.gateway.answer.ledger import Running
from services.gateway.answer.original_body import original_for_model
from services.gateway.answer.results import CacheDecision
from services.gateway.decisions import Changed, Decisions
from services.gateway.generation.job import Job, Report
from services.gateway.generation.shared import GenerationReading
from services.gateway.policies.slot import SlotRequest, score
from services.gateway.upstream import spending
from services.gateway.upstream.cache import Known
from services.gateway.upstream.calls import whose
from services.runtime import telemetry
from services.runtime.aside import aside, size_of_conversation, size_of_text
from services.runtime.deadline import Deadline

_SAID = ("delta", "reasoning", "tool_call")


async def question(context: RequestContext, *changed: str) -> llm_pb2.GenerateRequest:
    """The request to a model. `changed`: fields of the original body that the stage will replace."""
    request = context.question.request
    given, choice = _tools(context)
    tools = mask_tools(given, context.inputs.masked_texts)
    if choice is None and request.HasField("tool_choice"):
        changed = (*changed, "tool_choice")
    if tools and not request.tools:
        changed = (*changed, "tools", "tool_choice")
    if tools is not given:
        changed = (*changed, "tools")
    messages, original = context.inputs.for_model(), await original_for_model(context, changed)
    asked = llm_pb2.GenerateRequest(
        sampling=request.sampling if request.HasField("sampling") else None,
        response_format=request.response_format if request.HasField("response_format") else None,
        prefix=context.inputs.masked_texts.get(request.prefix, request.prefix),
        cache_salt=context.tenant.prefix_salt,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls if request.HasField("parallel_tool_calls") else None,
        most_tokens=context.tenant.max_tokens,
        omit_untranslated=context.question.settings.omits,
    )
    written = context.question.most_bytes + (len(original.body) if original else 0)
    size = max(size_of_conversation(messages), size_of_text(written))
    await aside(context.tenant.name, size, partial(_put, asked, messages, original), context.ledger.remaining())
    return asked


def _put(
    asked: llm_pb2.GenerateRequest, messages: Sequence[chat_pb2.Message], original: chat_pb2.Original | None
) -> None:
    """Give the request its conversation. As arguments of the constructor messages would be copied three times."""
    for message in messages:
        asked.messages.add().CopyFrom(message)
    if original is not None:
        asked.original.CopyFrom(original)


def _tools(context: RequestContext) -> tuple[Sequence[chat_pb2.Tool], chat_pb2.ToolChoice | None]:
    """The tools for the model that answers: those of the caller, and none of the mesh. Where the conversation holds
    calls of mesh tools, the mesh tools are listed, because some providers require it, with a `tool_choice` of none."""
    request, request_tools = context.question.request, context.request_tools
    choice = request.tool_choice if request.HasField("tool_choice") else None
    if request_tools is None or not request_tools.offered:
        return request.tools, choice
    if choice and (context.inputs.has_mesh_tool_calls or not request.tools or choice.name in request_tools.offered):
        choice = None  # it was for an earlier step
    if context.inputs.has_mesh_tool_calls and not request.tools:
        return request_tools.descriptions(), chat_pb2.ToolChoice(mode=chat_pb2.TOOL_MODE_NONE)
    return request.tools, choice


def job(
    context: RequestContext,
    asked: llm_pb2.GenerateRequest,
    models: Sequence[str],
    stage: Running,
    *,
    first_text: bool = True,
) -> Job:
    """The job for a request, within what is left of the budget of `stage`. `first_text`: whether its first text is
    that of the answer."""
    ledger, tenant, request = context.ledger, context.tenant, context.question.request
    deadline = Deadline.after(ledger.left_s(stage), ledger.clock)
    rank = score(
        premium=tenant.premium, realtime=request.realtime, attempt=request.attempt, background=context.in_background
    )
    decision, allowed = context.prior.get(CacheDecision), context.backends.fallbacks.order
    return Job(
        request=asked,
        models=models,
        deadline=deadline,
        slot_request=SlotRequest(rank, tenant.name, tenant.weight, deadline, context.on_slot),
        first_text=Deadline(ledger.opened + ledger.plan.first_text_ms / 1000, ledger.clock) if first_text else deadline,
        report=Report(Decisions(ledger.clock)),
        # The tenant's name, because tenants share the work of a service fairly.
        metadata=(*telemetry.propagate(stage.span), whose(tenant.name)),
        single_attempt=request.single_attempt,
        waits_for_model="stale" not in allowed or not (decision and decision.stale),
        fallback_when_late="smaller" in allowed,
        known=decision.known if decision else Known(),
    )


def read(context: RequestContext, key: bytes, work: Job) -> GenerationReading:
    """Start the job, or join a generation of the same key, whose prompt has the same turns."""
    if key and (dropped := context.ledger.final.prompt.dropped_turns):
        key += f"/without {dropped} turns".encode()
    reading = context.backends.models.read(key, work, work.deadline.remaining())
    if reading.joined:
        context.ledger.decisions += work.report.decisions
        context.ledger.changes.add(Changed.SHARED)
        if context.on_slot:  # a joined request needs no slot of its own
            context.on_slot()
    return reading


def settle(context: RequestContext, reading: GenerationReading) -> None:
    """Stop reading, and add the generation to the ledger. All readers get the decisions of the policies. The cost is
    known when the generation is over, and the first reader to settle after that is charged."""
    ledger, generation = context.ledger, reading.generation
    reading.reader.close()
    ledger.decisions += generation.report.decisions
    for name in generation.text.items[-1].finish.omitted if generation.text.items else ():
        ledger.changes.add(Changed.FIELD_OMITTED, before=name)
    if generation.over:
        asked = generation.job.request
        estimate = partial(prompt_tokens, asked.messages, asked.tools)
        bill = spending.book(generation.report.unbilled(), context.backends.routes, estimate)
        ledger.billed_tokens += bill.tokens
        ledger.final.cost_usd += bill.usd


def usage(finish: llm_pb2.Finish, report: Report) -> chat_pb2.Usage:
    """The usage of a text. Tokens before the call that ended it are the answer's, though that call read them."""
    used = chat_pb2.Usage()
    used.CopyFrom(finish.usage)
    used.completion_tokens += report.carried_tokens
    used.prompt_tokens = max(0, used.prompt_tokens - report.carried_tokens)
    used.cached_prompt_tokens = min(used.cached_prompt_tokens, used.prompt_tokens)
    return used


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

    def take(self, item: llm_pb2.GenerateResponse, report: Report) -> None:
        """Add a message of the generation with this `report`."""
        self.pieces.append(item.text)
        self.logprobs += [token.logprob for token in item.logprobs]
        self.written += item.tokens
        if item.HasField("finish"):
            self.finish_reason = item.finish.reason
            self.usage.CopyFrom(usage(item.finish, report))


Say = Callable[[Sequence[llm_pb2.GenerateResponse]], Awaitable[bool]]


async def collect(context: RequestContext, reading: GenerationReading, tried: Tried, say: Say | None = None) -> None:
    """Read into `tried` until the model ends, and settle. `say` is called with each new batch of messages, and returns
    whether to stop."""
    try:
        while not tried.finish_reason and (items := await reading.reader.take()):
            for item in items:
                tried.take(item, reading.report)
            if say and await say(items):
                return
    finally:
        settle(context, reading)


async def collect_all(context: RequestContext, reading: GenerationReading) -> Tried:
    tried = Tried()
    await collect(context, reading, tried)
    return tried


async def write_message(context: RequestContext, item: llm_pb2.GenerateResponse, *, relays: bool = False) -> None:
    """Write one message to the ledger and the client: reasoning before the text, calls after it. `relays`: the client
    reads the provider's own events, unless the text is guarded or replaces another one."""
    with context.writer.together() as start:
        await _write(context, item)
        if relays and item.relayed and not (context.text_writer.screens or context.text_writer.replacing):
            _relay(context.writer.events, item.relayed, start)


async def _write(context: RequestContext, item: llm_pb2.GenerateResponse) -> None:
    ledger, tokens = context.ledger, item.tokens
    if item.reasoning:
        spent, tokens = (0, tokens) if item.text else (tokens, 0)
        await context.text_writer.think(item.reasoning, spent)
    if item.text:
        await context.text_writer.say(item.text, tokens, item.logprobs)
    if item.tool_calls:
        await context.text_writer.release()
    if item.tool_calls and not context.text_writer.cut:
        ledger.written.add_calls(item.tool_calls, 0 if item.text else tokens)
        context.writer.write(*(pb.Event(tool_call=delta) for delta in item.tool_calls))


def _relay(events: list[pb.Event], relayed: Sequence[bytes], start: int) -> None:
    """Send the provider's events, which repeat `events` from `start` on."""
    for event in events[start:]:
        event.in_relayed = event.WhichOneof("kind") in _SAID  # another stage may have written an event meanwhile
    events.insert(start, pb.Event(relayed=pb.Relayed(events=relayed)))
