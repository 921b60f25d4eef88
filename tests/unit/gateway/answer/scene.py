"""A gateway's backends, scripted, and one question to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import INVALID_SPAN

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.effective import effective_settings
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question, prompt_tokens, recording_is
from services.gateway.admission.quota import Quotas
from services.gateway.answer.backends import Backends, Fallbacks, Prompts
from services.gateway.answer.context import RequestContext
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.plan import make_plan
from services.gateway.answer.registry import claims, planned
from services.gateway.answer.runner import AnswerRunner
from services.gateway.answer.stages.cache.l1 import L1Cache
from services.gateway.generation.stack import make_stack
from services.gateway.output_validation.forms import Checked, Forms, checked
from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.settings.answer_time import StageBudgets
from services.gateway.settings.generation import BreakerSettings
from services.gateway.tools.toolbox import RequestTools, Toolbox
from services.gateway.upstream.media import Media
from services.gateway.upstream.replica import make_breaker
from tests.clock import loop_clock
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import (
    NotedWriteBehind,
    ScriptedCache,
    ScriptedLlm,
    ScriptedRoutes,
    finish,
    fleet,
    text,
)
from tests.unit.gateway.shared_settings import gateway_settings

MISS = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_MISS, similarity=0.4)
STORED = cache_pb2.Answer(text="Paris.", model="large", finish_reason=chat_pb2.FINISH_REASON_STOP)
EXACT = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_EXACT, answer=STORED, key="k", similarity=1, ttl_ms=9_000)
ACME = Tenant("acme", prefix_salt="salt")
SETTINGS = gateway_settings(llm_addresses={"unused": "unused"}, response_format={"check": True})
EVERYTHING = Tenant("acme", prefix_salt="salt", tools=("*",))


def at_once(*given: Any) -> asyncio.Future[Checked]:
    """A paused loop waits for no thread."""
    done: asyncio.Future[Checked] = asyncio.get_running_loop().create_future()
    done.set_result(checked(*given))
    return done


class Scene:
    """A gateway's backends, scripted, and one question to them."""

    def __init__(
        self,
        cache: ScriptedCache | None = None,
        routes: ScriptedRoutes | None = None,
        fallbacks: Fallbacks = Fallbacks(),  # noqa: B008  # it is frozen
        senses: Media = Media(),  # noqa: B008  # it is frozen
        prompts: Prompts | None = None,
        tools: Toolbox | None = None,
        policies: Mapping[str, object] | None = None,
        **llms: ScriptedLlm,
    ):
        self.cache = cache
        self.budget_ms = 1_000.0
        self.tenant = ACME
        self.settings = SETTINGS
        self.slices = StageBudgets()
        self.pixels = False  # whether pictures go to the model as they are
        self.billed: list[int] = []  # tokens, of each answer at its end
        self.llms = llms or {"small": ScriptedLlm(text("Pa"), 0.01, finish("ris.")), "large": ScriptedLlm()}
        self.near, self.write_behind, self.quotas = L1Cache(10, 30), NotedWriteBehind(), Quotas()
        self.near.watch_began()
        self.fleet = fleet(loop_clock, policies, **self.llms)
        self.breaker = make_breaker(BreakerSettings(), "cache", LatencyBaseline(0.05))
        self.backends = Backends(
            cache,
            self.breaker,
            self.fleet,
            routes or ScriptedRoutes(),
            self.near,
            self.write_behind,
            make_stack(self.fleet, self.write_behind.observe),
            fallbacks,
            prompts or Prompts(),
            tools=tools,
            forms=Forms(beside=at_once),
        )
        self.media = senses

    def answer(
        self,
        *,
        on_slot: Callable[[], None] | None = None,
        revalidate: Callable[[bytes], None] | None = None,
        request_tools: RequestTools | None = None,
        **fields: object,
    ) -> AnswerRunner:
        asked = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="What is the capital of France?")
        request = pb.GenerateRequest(**({"messages": [asked]} | fields))
        question = Question(
            request,
            recording_is(request),
            prompt_tokens(request.messages),
            self.media.vision,
            self.media.audio,
            self.pixels,
            effective_settings(request, self.tenant, self.settings),
        )
        stages = claims(self.slices, planned(question, self.tenant, self.backends))
        plan = make_plan(stages, self.budget_ms, first_text_ms=request.first_token_budget_ms or float("inf"))
        on_settled = lambda over: self.billed.append(100 - over)  # noqa: E731
        reservation = self.quotas.reserve("acme", ACME.allowance, 100, on_settled=on_settled)
        ledger = Ledger(plan, INVALID_SPAN, 0.01, clock=loop_clock)
        context = RequestContext.open(
            question,
            self.tenant,
            ledger,
            self.backends,
            on_slot=on_slot,
            revalidate=revalidate,
            request_tools=request_tools,
        )
        return AnswerRunner(context, reservation)

    async def equipped(self, tenant: Tenant = EVERYTHING, **fields: object) -> AnswerRunner:
        """An answer that may use tools of the mesh."""
        assert self.backends.tools
        request_tools = await self.backends.tools.resolve(pb.GenerateRequest(**fields), tenant, 1.0)
        return self.answer(request_tools=request_tools, **fields)

    async def messages(self, **fields: object) -> list[pb.GenerateResponse]:
        equipped = "mesh_tools" in fields
        answer = await self.equipped(**fields) if equipped else self.answer(**fields)
        return [message async for message in sent_by(answer.give)]

    async def events(self, **fields: object) -> list[pb.Event]:
        return [event for message in await self.messages(**fields) for event in message.events]

    async def final(self, **fields: object) -> pb.Final:
        return (await self.events(**fields))[-1].final


def outcomes(final: pb.Final) -> dict[str, str]:
    return {stage.name: pb.StageOutcome.Name(stage.outcome).removeprefix("STAGE_OUTCOME_") for stage in final.stages}
