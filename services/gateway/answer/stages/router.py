"""The choice of a model, from the table that the router pushed: microseconds, while the cache is asked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.question import prompt_tokens
from services.gateway.answer.ledger import Running
from services.gateway.answer.results import Route
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.labels import Degraded
from services.gateway.prompt import window
from services.gateway.settings.permissions import choices
from services.runtime.complexity import Complexity
from services.runtime.errors import InvalidInput
from services.runtime.routing import Choice, Demand, Tier, affordable


class RouterStage(AnswerStage):
    name, after = "router", ("audio",)

    async def start(self) -> Route:
        with self.context.ledger.stage(self.name) as stage:
            return self._choose(stage)

    def _choose(self, stage: Running) -> Route:
        context, demand = self.context, self._demand()
        request, routes = context.question.request, context.backends.routes
        if request.model:
            if model := routes.model(request.model):
                affordable([model], demand)
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, f"{request.model}: asked for by name"
            return Route(Choice(request.model, (), Complexity.UNSPECIFIED, fallback=False, reason=stage.detail))
        if request.HasField("cascade"):
            demand = replace(demand, tier=Tier.QUALITY)
        choice = routes.choose(demand)
        if choice and choice.fallback and (least := self._least_tokens()) < demand.prompt_tokens:
            choice = routes.choose(replace(demand, prompt_tokens=least))
        if choice is None:
            return Route(self.fallback(stage))
        away = "" if routes.live else " (the router is down: its last table)"
        stage.detail = f"{choice.model}: {choice.reason}{away}"
        if choice.fallback:
            context.ledger.degrade(Degraded.ROUTER_FALLBACK)
        return Route(choice, self._smaller(choice, demand) if request.HasField("cascade") else None)

    def _smaller(self, choice: Choice, demand: Demand) -> Choice | None:
        """A model of a lower tier than the chosen one: their current speed does not matter for a cascade."""
        routes = self.context.backends.routes
        chosen = routes.model(choice.model)
        with suppress(InvalidInput):  # it costs more than the answer may
            return routes.choose(replace(demand, tier=Tier.FAST), below=chosen.tier) if chosen else None
        return None

    def fallback(self, stage: Running) -> Choice:
        """Without a table, the models in the order of the settings."""
        first, *others = (pool.model for pool in self.context.backends.fleet.chat)
        if self.context.backends.routes.expected:
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_FAILED, f"no table yet: {first} is used"
            self.context.ledger.degrade(Degraded.ROUTER_UNAVAILABLE)
        else:
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, f"{first}: there is no router"
        return Choice(first, tuple(others), Complexity.UNSPECIFIED, fallback=True, reason=stage.detail)

    def _least_tokens(self) -> int:
        """An estimate of the tokens that no model can do without: system messages and the question."""
        context = self.context
        if context.question.settings.prompt.whole or not context.inputs.asked.messages:
            return context.inputs.prompt_tokens
        conversation = window.parts(context.inputs.asked.messages)
        return prompt_tokens([*conversation.head, *conversation.question], context.question.request.tools)

    def _demand(self) -> Demand:
        request, messages = self.context.question.request, self.context.inputs.asked.messages
        return Demand(
            tier=Tier(request.tier),
            question=messages[-1].content,
            budget_ms=self.context.ledger.plan["llm"].budget_ms,
            prompt_tokens=self.context.inputs.prompt_tokens,
            max_tokens=request.sampling.max_tokens,
            max_cost_usd=request.max_cost_usd if request.HasField("max_cost_usd") else None,
            answers=choices(request.original),
            pictures=self.context.question.pixels or self._must_see(),
        )

    def _must_see(self) -> bool:
        """Whether there are pictures that the vision service does not read, and a model that takes them."""
        return self.context.backends.routes.sees("") and any(
            each.picture for message in self.context.question.request.messages for each in message.documents
        )
