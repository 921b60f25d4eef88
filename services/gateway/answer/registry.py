"""The stages of an answer, in the order in which they may start. Another one is a file here, and a line.

Each stage says which requests have it, what it waits for and what it may take of the budget: `planned` and `claims` ask
them, `plan.py` makes the plan from that, and `runner.py` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.plan import Stage
from services.gateway.answer.stages.agent import AgentStage
from services.gateway.answer.stages.cache.stage import CacheStage
from services.gateway.answer.stages.cascade import CascadeStage
from services.gateway.answer.stages.form import FormStage
from services.gateway.answer.stages.guard import GuardStage
from services.gateway.answer.stages.llm import LlmStage
from services.gateway.answer.stages.media import AudioStage, VisionStage
from services.gateway.answer.stages.prompt import PromptStage
from services.gateway.answer.stages.router import RouterStage
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.answer.stages.tools import ToolsStage
from services.gateway.settings.answer_time import StageBudgets

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
    """Which stages the answer to a question has: each says so itself."""
    return tuple(
        (name, stage.required(question)) for name, stage in known.items() if stage.wanted(question, tenant, backends)
    )


def claims(
    budgets: StageBudgets, wanted: Sequence[Planned], known: Mapping[str, type[AnswerStage]] = STAGES
) -> tuple[Stage, ...]:
    """The budget claims of these stages, and the dependencies between them.

    A recording is the question, and then required, or context for a written one, and then optional. The cache waits for
    recordings and pictures, because their content is a part of its key.
    """
    stages = [known[name] for name, _ in wanted]
    return tuple(_claim(known[name], budgets, stages, required=required) for name, required in wanted)


def _claim(
    stage: type[AnswerStage], budgets: StageBudgets, beside: Sequence[type[AnswerStage]], *, required: bool
) -> Stage:
    budget = getattr(budgets, stage.name, stage.budget)
    after = tuple(each.name for each in beside if each.name in stage.after or stage.name in each.before)
    return Stage(stage.name, budget.share, budget.cap_ms, required, after)
