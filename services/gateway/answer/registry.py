"""The stages of an answer, in the order in which they may start. Another one is a file in `stages/`, and a line.

Each stage says which requests have it, what it waits for and what it may take of the budget: `planned` and `claims` ask
them, `plan.py` makes the plan from that, and `runner.py` runs it. `opened` adds the stages of a deployment
(`stages/own.py`) when the gateway starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import import_module

import grpc

from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.plan import StageClaim
from services.gateway.answer.stages.agent import AgentStage
from services.gateway.answer.stages.cache.stage import CacheStage
from services.gateway.answer.stages.cascade import CascadeStage
from services.gateway.answer.stages.form import FormStage
from services.gateway.answer.stages.guard import GuardStage
from services.gateway.answer.stages.llm import LlmStage
from services.gateway.answer.stages.media import AudioStage, VisionStage
from services.gateway.answer.stages.own import OwnStage, ServiceStage
from services.gateway.answer.stages.prompt import PromptStage
from services.gateway.answer.stages.router import RouterStage
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.answer.stages.tools import ToolsStage
from services.gateway.settings.answer_time import StageBudgets
from services.runtime.security.tls import Dial

_LONGEST_NAME = 32

STAGES: Mapping[str, type[AnswerStage]] = {
    stage.name: stage
    for stage in (
        *(AudioStage, VisionStage, GuardStage, CacheStage, RouterStage, ToolsStage, PromptStage),
        *(CascadeStage, AgentStage, LlmStage, FormStage),
    )
}


Planned = tuple[str, bool]  # a stage, and whether there is no answer without it


def planned(
    question: Question, tenant: Tenant, backends: Backends, known: Mapping[str, type[AnswerStage]] = STAGES
) -> tuple[Planned, ...]:
    """The stages of the answer to a question: each stage decides whether it is needed."""
    return tuple(
        (name, stage.required(question)) for name, stage in known.items() if stage.wanted(question, tenant, backends)
    )


def claims(
    budgets: StageBudgets, wanted: Sequence[Planned], known: Mapping[str, type[AnswerStage]] = STAGES
) -> tuple[StageClaim, ...]:
    """The budget claims of these stages, and the dependencies between them.

    A recording is the question, and then required, or context for a written one, and then optional. The cache waits for
    recordings and pictures, because their content is a part of its key.
    """
    stages = [known[name] for name, _ in wanted]
    return tuple(_claim(known[name], budgets, stages, required=required) for name, required in wanted)


def _claim(
    stage: type[AnswerStage], budgets: StageBudgets, beside: Sequence[type[AnswerStage]], *, required: bool
) -> StageClaim:
    budget = getattr(budgets, stage.name, stage.budget)
    after = tuple(each.name for each in beside if each.name in stage.after or stage.name in each.before)
    return StageClaim(stage.name, budget.share, budget.cap_ms, required, after)


class BadStage(Exception):
    """A stage that cannot be loaded. The text names it."""


async def opened(
    places: Sequence[str], channels: Mapping[str, grpc.aio.Channel], dial: Dial, stack: AsyncExitStack
) -> Mapping[str, type[AnswerStage]]:
    """The stages of answers, with those at `places`. Their connections stay open until `stack` is left; `channels`
    are those to stages' own services, by stage. Raises `BadStage`."""

    async def connect(address: str, identity: str) -> grpc.aio.Channel:
        return await stack.enter_async_context(dial(address, identity))

    stages = load(places)
    asking = {name: stage for name, stage in stages.items() if issubclass(stage, ServiceStage)}
    if unknown := channels.keys() - asking.keys():
        raise BadStage(
            f"stage_addresses: stages with a service ({', '.join(asking)}), got {', '.join(sorted(unknown))}"
        )
    for name, stage in asking.items():
        stage.channel = channels.get(name)
    for own in stages.values():
        if issubclass(own, OwnStage):
            await own.open(connect)
    return stages


def load(places: Sequence[str], known: Mapping[str, type[AnswerStage]] = STAGES) -> Mapping[str, type[AnswerStage]]:
    """The stages of an answer, with those at `places` (`package.module:Class`). Raises `BadStage`."""
    stages = dict(known)
    for place in places:
        stages = _placed(_found(place), place, stages)
    return stages


def _found(place: str) -> type[AnswerStage]:
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadStage(f"own_stages: package.module:Class, got {place}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, AnswerStage)):
        raise BadStage(f"own_stages: a subclass of OwnStage, got {place}")
    return found


def _placed(stage: type[AnswerStage], place: str, stages: dict[str, type[AnswerStage]]) -> dict[str, type[AnswerStage]]:
    """`stages`, with this one in front of the first of those that wait for it."""
    name = getattr(stage, "name", "")
    if not (name.isidentifier() and name.islower() and len(name) <= _LONGEST_NAME) or name in stages:
        raise BadStage(f"own_stages: {place}: a name of its own, of lower case, at most {_LONGEST_NAME}, got {name!r}")
    if unknown := {*stage.after, *stage.before} - stages.keys():
        raise BadStage(f"own_stages: {place}: stages out of {', '.join(stages)}, got {', '.join(sorted(unknown))}")
    order = list(stages)
    at = min((order.index(each) for each in stage.before), default=len(order))
    if late := [each for each in stage.after if order.index(each) >= at]:
        raise BadStage(f"own_stages: {place}: it cannot be after {late[0]} and before {order[at]}")
    return {each: stages.get(each, stage) for each in (*order[:at], name, *order[at:])}
