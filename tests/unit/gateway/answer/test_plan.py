from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import INVALID_SPAN

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.question import Question
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.plan import StageClaim, make_plan
from services.gateway.answer.registry import STAGES, claims
from services.gateway.settings.answer_time import StageBudget, StageBudgets
from tests.clock import PausedClock


def stages_of(*optional: str, budgets: StageBudgets = StageBudgets()) -> tuple[StageClaim, ...]:  # noqa: B008  # it is frozen
    """The stages of an answer with these, the router and the model."""
    names = [name for name in STAGES if name in (*optional, "router", "llm")]
    return claims(budgets, [(name, name in ("audio", "llm")) for name in names])


def test_stages_that_wait_for_nothing_start_at_once_and_the_model_after_the_slowest():
    plan = make_plan(stages_of("cache"), 1_000)
    assert [(planned.stage.name, planned.starts_ms) for planned in plan.slices] == [
        ("cache", 0),
        ("router", 0),
        ("llm", 200),
    ]
    assert plan["llm"].budget_ms == 800


def test_a_cap_holds_a_share_down():
    assert make_plan(stages_of("cache"), 30_000)["cache"].budget_ms == 200


shares = st.floats(0.01, 1)
caps = st.floats(1, 10_000)
budgets = st.builds(StageBudget, share=shares, cap_ms=caps)


@given(
    st.builds(StageBudgets, cache=budgets, router=budgets, llm=budgets),
    st.booleans(),
    st.floats(1, 1e5),
    st.floats(0, 0.99),
)
def test_along_every_path_the_slices_stay_within_the_budget(stages, cached, budget_ms, floor_share):
    plan = make_plan(stages_of(*["cache"] * cached, budgets=stages), budget_ms, floor_share=floor_share)
    for planned in plan.slices:
        assert planned.budget_ms >= 0
        assert planned.starts_ms + planned.budget_ms <= budget_ms * (1 + 1e-9)
        if not planned.stage.required:
            assert planned.starts_ms + planned.budget_ms <= budget_ms * (1 - floor_share) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("senses", "starts_ms"),
    [
        (("vision", "audio"), {"audio": 0, "vision": 0, "cache": 1_000, "router": 1_000, "llm": 1_200}),
        (("vision",), {"vision": 0, "cache": 500, "router": 0, "llm": 700}),
    ],
)
def test_pictures_and_a_recording_are_at_once_the_cache_waits_for_both_and_the_router_not_for_pictures(
    senses: tuple[str, ...], starts_ms: dict[str, float]
):
    plan = make_plan(stages_of("cache", *senses), 2_000)
    assert {planned.stage.name: planned.starts_ms for planned in plan.slices} == starts_ms


@pytest.mark.parametrize(("role", "required"), [("question", True), ("context", False)])
def test_a_recording_is_required_where_it_is_the_question(role: str, required: bool):
    assert STAGES["audio"].required(Question(pb.GenerateRequest(), role)) is required


def test_an_optional_stage_that_starts_late_ends_where_the_floor_begins():
    stages = (
        StageClaim("a", 0.2, 1e9, True),
        StageClaim("optional", 0.5, 1e9, False, ("a",)),
        StageClaim("llm", 1, 1e9, True, ("optional",)),
    )
    clock = PausedClock()
    ledger = Ledger(make_plan(stages, 1_000, floor_share=0.3), INVALID_SPAN, 0.0, clock=clock)
    clock.advance(0.45)
    assert ledger.begin("optional").budget_s == pytest.approx(0.25)
    clock.advance(0.3)
    assert ledger.begin("optional").budget_s == 0
    assert ledger.begin("llm").budget_s == pytest.approx(0.25)


@pytest.mark.parametrize("seed", range(300, 305))
def test_stages_that_overrun_or_end_early_leave_every_stage_within_the_budget_and_optional_ones_before_the_floor(seed):
    rng = random.Random(seed)
    for _ in range(100):
        budget_ms, floor_share, clock = rng.choice((50, 1_000, 30_000)), rng.choice((0, 0.3)), PausedClock()
        stages = _drawn(rng)
        plan, ends = make_plan(stages, budget_ms, floor_share=floor_share), dict[str, float]()
        ledger = Ledger(plan, INVALID_SPAN, 0.0, clock=clock)
        for stage in stages:
            started = max((ends[name] for name in stage.after), default=0.0)
            clock.advance(started - ledger.elapsed())
            budget_s = ledger.begin(stage.name).budget_s
            end_s = budget_ms / 1000 * (1 if stage.required else 1 - floor_share)
            assert 0 <= budget_s <= max(0.0, end_s - started) + 1e-9
            ends[stage.name] = started + budget_s * rng.choice((0.1, 1, 1.2))  # one in three overruns


def _drawn(rng: random.Random) -> list[StageClaim]:
    stages = list[StageClaim]()
    for number in range(rng.randint(1, 6)):
        after = tuple(stage.name for stage in stages if rng.random() < 0.4)
        stages.append(StageClaim(str(number), rng.random(), rng.choice((10, 100, 1e9)), rng.random() < 0.3, after))
    return stages
