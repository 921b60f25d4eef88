"""The gateway's gRPC service: authenticates each call, and sends it to answers, batches or conversations."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from weakref import WeakValueDictionary

from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.control import PIECE_S
from services.gateway.admission.credential import Credential
from services.gateway.admission.effective import budget_of
from services.gateway.admission.identity import Identity, Tenant
from services.gateway.admission.intake import Intake
from services.gateway.admission.quota import TURN
from services.gateway.admission.validation import check_call, validate_conversation
from services.gateway.answer.backends import Backends
from services.gateway.answer.event_writer import Send
from services.gateway.answer.registry import STAGES
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.api.arrivals import Arrivals
from services.gateway.api.batch import Batch, batch_error
from services.gateway.api.choices import Choices, ChoicesGiver
from services.gateway.api.conversation import Conversation, ends_with, opening
from services.gateway.api.idempotency import Begin, IdempotencyStore, SendChoice, with_heartbeats
from services.gateway.api.outcomes import NONE, TENANT, Outcomes
from services.gateway.api.preparation import CheckedRequest, Preparation
from services.gateway.api.reports_and_warmup import report_wrong, warm_up
from services.gateway.api.speech_queue import ConversationBytes, Spoken
from services.gateway.config import GatewaySettings
from services.gateway.policies.batch_admission import ItemTurn
from services.gateway.prefix_warmup import PrefixWarmup
from services.gateway.upstream.calls import whose
from services.gateway.upstream.media import AudioCalls, Media
from services.runtime import telemetry
from services.runtime.errors import InvalidInput
from services.runtime.rpc.boundary import Call

_SLOT_DECISION_S = 1.0  # for Redis to decide on a slot of a conversation, a warm-up or an idempotent answer
_REPEAT_GRACE_S = 0.2  # by which a repeat waits longer than its budget, so that the answer ends before


class GatewayServicer:
    """Serves `hedgerow.gateway.v1.GatewayService`."""

    def __init__(
        self,
        settings: GatewaySettings,
        backends: Backends,
        media: Media,
        identity: Identity,
        intake: Intake,
        warming: PrefixWarmup,
        stages: Mapping[str, type[AnswerStage]] = STAGES,
    ):
        self._settings, self._backends, self._media, self._warming = settings, backends, media, warming
        self._identity, self._admission = identity, intake.admission
        self._preparation = Preparation(settings, backends, media, intake.admission, stages)
        self._conversations: set[Conversation] = set()
        self._idempotency = IdempotencyStore(settings.keeps)
        self.keeps, self.ended = self._idempotency.has, Outcomes().ended
        self.arriving = Arrivals(settings, intake, self._idempotency).of
        self._conversation_bytes = WeakValueDictionary[str, ConversationBytes]()

    def authorize(self, metadata: Iterable[tuple[str, str | bytes]], caller: str) -> Credential:
        """The credential of a call to any service of this process. Raises `KeyUnknown` or `CredentialsDiffer`."""
        TENANT.set(NONE)
        credential = Credential(self._identity, metadata, caller)
        TENANT.set(credential.tenant.name)
        return credential

    async def Generate(self, request: pb.GenerateRequest, call: Call, send: Send) -> None:
        if request.HasField("original"):  # it would not be checked: only the HTTP routes read it
            raise InvalidInput("original", "none by gRPC", "one")
        credential = self.authorize(call.metadata, call.peer)
        await credential.during(self._answer(request, call, credential, send))

    async def answer(self, request: pb.GenerateRequest, call: Call, send: Send) -> None:
        """`Generate` for the HTTP routes, which have read `original` into the request's other fields, and show no
        progress."""
        await self._answer(request, call, self.authorize(call.metadata, call.peer), send, progress=False)

    async def _answer(
        self, request: pb.GenerateRequest, call: Call, credential: Credential, send: Send, *, progress: bool = True
    ) -> None:
        give = await self._answer_source(request, credential.tenant, call, progress=progress)
        call.admitted()

        async def send_checked(message: pb.GenerateResponse, _: int | None = None, /) -> None:
            credential.check()
            self._admission.spend(credential.tenant, len(message.events) * PIECE_S)
            await send(message)

        if request.HasField("heartbeat_ms"):
            await with_heartbeats(give, send_checked, request.heartbeat_ms / 1000)
        else:
            await give(send_checked)

    async def answer_choices(self, choices: Choices, call: Call, send: SendChoice) -> None:
        """Several answers to one question, for the HTTP routes. An idempotency key stands for all of them."""
        credential, request = self.authorize(call.metadata, call.peer), choices.whole
        giver = ChoicesGiver(self._preparation, credential.tenant, call.deadline, call.admitted)

        async def send_checked(message: pb.GenerateResponse, choice: int | None = None, /) -> None:
            credential.check()
            self._admission.spend(credential.tenant, len(message.events) * PIECE_S)
            await send(message, choice)

        if request.idempotency_key:
            call.admitted()
            give = partial(giver.give, choices)
            await self._idempotent_answer(request, credential.tenant, call, give, choices.count)(send_checked)
        else:
            await giver.give(choices, call.span, send_checked)

    async def _answer_source(
        self, request: pb.GenerateRequest, tenant: Tenant, call: Call, *, progress: bool
    ) -> Callable[[SendChoice], Awaitable[object]]:
        """A function that sends the answer: a new one, or that of an idempotency key, which keeps all events."""
        if not (request.idempotency_key or request.events_seen):
            answer = await self._preparation.prepare_answer(request, tenant, call.deadline, call.span)
            return partial(answer.give, progress=progress)

        async def begin(span: Span, send: Send) -> None:
            await (await self._preparation.prepare_answer(request, tenant, call.deadline, span)).give(send)

        return self._idempotent_answer(request, tenant, call, begin)

    def _idempotent_answer(
        self, request: pb.GenerateRequest, tenant: Tenant, call: Call, begin: Begin, choices: int = 1
    ) -> Callable[[SendChoice], Awaitable[object]]:
        """A function that sends the answer of the request's idempotency key; `begin` makes it if there is none yet.
        Raises `InvalidInput`."""
        check_call(request)
        admit = partial(self._admission.hold, tenant, telemetry.trace_id(call.span), _SLOT_DECISION_S)
        within_s = budget_of(request, tenant, self._settings, call.deadline).ms / 1000 + _REPEAT_GRACE_S
        return partial(self._idempotency.follow, request, tenant.name, begin, admit, within_s, choices=choices)

    async def GenerateBatch(
        self, request: pb.GenerateBatchRequest, call: Call
    ) -> AsyncIterator[pb.GenerateBatchResponse]:
        credential = self.authorize(call.metadata, call.peer)
        preparation, tenant = self._preparation, credential.tenant
        if not 1 <= len(request.requests) <= self._settings.max_batch:
            raise InvalidInput("requests", f"1 to {self._settings.max_batch} requests", len(request.requests))

        async def check(item: pb.GenerateRequest) -> CheckedRequest:
            if item.idempotency_key or item.events_seen:
                raise InvalidInput("idempotency_key", "none in a batch", "one")
            if item.HasField("original"):
                raise InvalidInput("original", "none by gRPC", "one")
            return await preparation.checked(item, tenant, call.deadline)

        async def give(checked: CheckedRequest, turn: ItemTurn) -> pb.Final:
            credential.check()
            admitted = await preparation.admit_in_time(checked, call.span)
            return await (await preparation.answer(admitted, call.span, on_slot=turn.end)).give()

        to_error = partial(batch_error, trace_id=telemetry.trace_id(call.span))
        async with aclosing(Batch(check, give, to_error).results(request.requests)) as results:
            while (result := await credential.during(anext(results, None))) is not None:
                credential.check()
                yield result

    async def Converse(
        self, requests: AsyncIterator[pb.ConverseRequest], call: Call
    ) -> AsyncIterator[pb.ConverseResponse]:
        credential = self.authorize(call.metadata, call.peer)
        async with self._admission.holding(credential.tenant, telemetry.trace_id(call.span), _SLOT_DECISION_S):
            first = await opening(requests)
            audio = await self._audio_for(first, credential.tenant)
            call.admitted()
            conversation = self._conversation(first.options, credential, call)
            remaining = call.deadline.remaining()
            timeout_s = remaining if math.isfinite(remaining) else None
            metadata = (*telemetry.propagate(call.span), whose(credential.tenant.name))
            with self._registered(conversation), ends_with(credential, conversation):
                async with aclosing(conversation.responses(requests, audio, timeout_s, metadata)) as responses:
                    async for response in responses:
                        yield response

    async def ListTools(self, request: pb.ListToolsRequest, call: Call) -> pb.ListToolsResponse:
        tenant, toolbox = self.authorize(call.metadata, call.peer).tenant, self._backends.tools
        return await toolbox.list(tenant, self._settings.tools.list_ms / 1000) if toolbox else pb.ListToolsResponse()

    async def Warm(self, request: pb.WarmRequest, call: Call) -> AsyncIterator[pb.WarmResponse]:
        credential = self.authorize(call.metadata, call.peer)
        held = self._admission.holding(credential.tenant, telemetry.trace_id(call.span), _SLOT_DECISION_S)
        async with held, aclosing(warm_up(request, credential.tenant, self._warming)) as responses:
            while (response := await credential.during(anext(responses, None))) is not None:
                credential.check()
                yield response

    async def ReportWrong(self, request: pb.ReportWrongRequest, call: Call) -> pb.ReportWrongResponse:
        credential = self.authorize(call.metadata, call.peer)
        return await report_wrong(request, credential.tenant, call, self._backends.cache, self._admission)

    def drain(self) -> None:
        """End conversations, and work that no client waits for."""
        for conversation in self._conversations:
            conversation.close()
        self._idempotency.drain()
        self._preparation.close()

    async def _audio_for(self, first: pb.ConverseRequest, tenant: Tenant) -> AudioCalls:
        """The audio service for a conversation. Raises `InvalidInput` for a wrong first message, and the breaker's
        refusal."""
        if not first.HasField("options"):
            raise InvalidInput("options", "required in the first message", first.WhichOneof("kind") or "nothing")
        options, settings = first.options, self._settings
        check = partial(validate_conversation, options, settings, self._media)
        audio = await self._preparation.aside(options.request, tenant, check)
        if not audio.breaker.would_admit():
            raise audio.breaker.refusal()
        return audio.client

    def _conversation(self, options: pb.ConverseOptions, credential: Credential, call: Call) -> Conversation:
        async def answer_turn(request: pb.GenerateRequest, send: Send) -> None:
            """Give the answer of a turn, in a span of its own. The conversation has the slot."""
            with telemetry.internal_span("turn") as span:
                answer = await self._preparation.prepare_answer(request, credential.tenant, call.deadline, span, TURN)
                await answer.give(send)

        settings, name = self._settings, credential.tenant.name
        tally = self._conversation_bytes.get(name) or ConversationBytes(settings.tenant_queue_bytes)
        self._conversation_bytes[name] = tally
        spoken = Spoken(settings.conversation_queue_bytes, tally)
        to_error = partial(batch_error, trace_id=telemetry.trace_id(call.span))
        return Conversation(
            options, answer_turn, to_error, settings.conversation_turns, settings.conversation_idle_ms / 1000, spoken
        )

    @contextmanager
    def _registered(self, conversation: Conversation) -> Iterator[None]:
        self._conversations.add(conversation)
        try:
            yield
        finally:
            self._conversations.discard(conversation)
