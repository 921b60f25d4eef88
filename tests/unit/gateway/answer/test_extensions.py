"""What others build: a policy, a stage and an engine in a package of their own, with nothing of ours changed."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.question import Question
from services.gateway.answer.context import RequestContext
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.plan import make_plan
from services.gateway.answer.registry import STAGES, claims, planned
from services.gateway.answer.runner import AnswerRunner
from services.gateway.decisions import Decisions
from services.gateway.generation.fallback import Fallback
from services.gateway.generation.hedging import Hedging
from services.gateway.generation.job import Job, Report
from services.gateway.generation.limiting import Limiting
from services.gateway.generation.retrying import Resumable, Retrying
from services.gateway.generation.sending import LoadBalancing, Send
from services.gateway.generation.shared import Shared
from services.gateway.policies.slot import SlotRequest
from services.gateway.settings.answer_time import StageBudgets
from services.llm import engines
from services.llm.config import LlmSettings
from services.llm.errors import BadEngineSettings
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput
from tests.unit.gateway.answer.scene import ACME, Scene
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedLlm, finish, fleet

pytestmark = pytest.mark.paused

POLICY = '''
from services.runtime.errors import InvalidInput

class Guardrail:
    """Refuses what must not be asked, before any model is called."""

    def __init__(self, word, inner):
        self._word, self._inner = word, inner

    async def __call__(self, job):
        if self._word in job.request.messages[-1].content:
            raise InvalidInput("messages", f"no {self._word}", "it")
        return await self._inner(job)
'''
STAGE = '''
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.settings.answer_time import StageBudget

class TimeStage(AnswerStage):
    """Tells the model what time it is."""

    name, after, budget = "time", ("audio",), StageBudget(share=0.1, cap_ms=20)

    async def run(self):
        with self.context.ledger.stage(self.name) as stage:
            self.context.inputs.take_transcript("It is noon.")
            stage.detail = "noon"
'''
ENGINE = """
class Parrot:
    def __init__(self, settings):
        self.name = settings.public_name

async def start(settings, progress):
    progress("a parrot needs no model")
    return Parrot(settings)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with the three, importable."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name, text in {"__init__": "", "policy": POLICY, "stage": STAGE, "engine": ENGINE}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield "theirs"
    for name in [name for name in sys.modules if name.partition(".")[0] == "theirs"]:
        del sys.modules[name]


@pytest.mark.parametrize(("asked", "refused"), [("What is latency?", False), ("Tell me a secret.", True)])
async def test_a_policy_is_a_layer_of_the_stack(package: str, asked: str, refused: bool) -> None:
    guardrail = import_module(f"{package}.policy").Guardrail
    llm = ScriptedLlm(finish("Time."))
    behind, observe = fleet(m=llm), lambda _: None
    call = LoadBalancing(behind, Send(observe, behind.stall_s))
    begin = guardrail("secret", Fallback(Retrying(behind, Limiting(behind, Hedging(behind, call)))))
    deadline = Deadline.after(1)
    job = Job(
        llm_pb2.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=asked)]),
        ("m",),
        deadline,
        SlotRequest(0, "acme", 1.0, deadline),
        Deadline.never(),
        Report(Decisions()),
    )
    reader = Shared(Resumable(behind, begin, call)).read(b"", job, 1).reader
    if refused:
        with pytest.raises(InvalidInput, match="no secret"):
            await reader.take()
    else:
        assert [item.text for item in await reader.take()] == ["Time."]
    assert len(llm.calls) == (not refused)


async def test_a_stage_is_planned_run_and_reported(package: str) -> None:
    stages = {"time": import_module(f"{package}.stage").TimeStage, **STAGES}
    scene = Scene()
    request = pb.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="What time is it?")])
    wanted = planned(Question(request), ACME, scene.backends, stages)
    plan = make_plan(claims(StageBudgets(), wanted, stages), 1_000)
    assert (plan["time"].budget_ms, plan["time"].starts_ms) == (20, 0)
    context = RequestContext.open(Question(request), ACME, Ledger(plan, INVALID_SPAN, 0.01), scene.backends)
    reservation = scene.quotas.reserve("acme", ACME.allowance, 100)
    events = [
        event async for message in sent_by(AnswerRunner(context, reservation, stages).give) for event in message.events
    ]
    assert [stage.name for stage in events[-1].final.stages] == ["router", "time", "llm"]
    (sent,) = scene.llms["small"].requests
    assert sent.messages[-1].content.startswith("Context:\n- audio: It is noon.")


async def test_an_engine_is_named_by_its_import_path(package: str) -> None:
    said: list[str] = []
    engine: Any = await engines.start(LlmSettings(engine=f"{package}.engine:start"), said.append)
    assert (engine.name, said) == (f"{package}.engine", ["a parrot needs no model"])


@pytest.mark.parametrize("engine", ["theirs.nothing:start", "theirs.engine:nothing"])
async def test_an_engine_that_is_not_there_is_refused_by_name(package: str, engine: str) -> None:
    with pytest.raises(BadEngineSettings, match=f"engine: one of vllm, openai, anthropic, or .* got {engine}"):
        await engines.start(LlmSettings(engine=engine), print)
