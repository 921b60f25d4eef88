"""The stages of an answer, in the order in which they may start. Another one is a file here, and a line.

Which of them a request has, what each waits for and what it may take is data: `answer_stages` makes the plan from it,
and `answer.py` runs the plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.gateway.admission.question import Recording
from services.gateway.answer.plan import Stage
from services.gateway.answer.stages.agent import AgentStage
from services.gateway.answer.stages.cache import CacheStage
from services.gateway.answer.stages.cascade import CascadeStage
from services.gateway.answer.stages.form import FormStage
from services.gateway.answer.stages.guard import GuardStage
from services.gateway.answer.stages.llm import LlmStage
from services.gateway.answer.stages.media import AudioStage, VisionStage
from services.gateway.answer.stages.prompt import PromptStage
from services.gateway.answer.stages.router import RouterStage
from services.gateway.answer.stages.stage import AnswerStage, Needs
from services.gateway.answer.stages.tools import ToolsStage
from services.gateway.settings.budgets import StageBudgets

STAGES: Mapping[str, type[AnswerStage]] = {
    stage.name: stage
    for stage in (
        *(AudioStage, VisionStage, GuardStage, CacheStage, RouterStage, ToolsStage, PromptStage),
        *(CascadeStage, AgentStage, LlmStage, FormStage),
    )
}


def answer_stages(
    budgets: StageBudgets,
    *,
    cached: bool,
    images: bool = False,
    audio: Recording = "",
    guard: bool = False,
    prompt: bool = False,
    cascade: bool = False,
    tools: bool = False,
    offered: bool = False,
    form: bool = False,
    known: Mapping[str, type[AnswerStage]] = STAGES,
) -> tuple[Stage, ...]:
    """The stages of an answer: without the cache where the request leaves it out, with the media it brings.

    A recording is the question, which nothing can be done without, or context for one, which an answer can do without.
    The cache waits for both, because what they find is a part of its key.
    """
    needs = Needs(cached, images, audio, cascade, guard, prompt, tools, offered, form)
    wanted = [stage for stage in known.values() if stage.wanted(needs)]
    names = {stage.name for stage in wanted}
    return tuple(_claim(stage, needs, budgets, names) for stage in wanted)


def _claim(stage: type[AnswerStage], needs: Needs, budgets: StageBudgets, names: set[str]) -> Stage:
    budget = getattr(budgets, stage.name, stage.budget)
    after = tuple(name for name in stage.after if name in names)
    return Stage(stage.name, budget.share, budget.cap_ms, stage.required(needs), after)
