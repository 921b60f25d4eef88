"""Bars stand for time: where a stage began, what it took, and what was left of its slice."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper

import pytest
from rich.console import Console

from hedgerow import Answer, StageReport
from hedgerow_cli.waterfall import axis_ms, short, spent_cells, waterfall
from tests.unit.cli.answers import an_answer


def drawn(answer: Answer, width: int = 80, encoding: str = "utf-8") -> list[str]:
    console = Console(file=TextIOWrapper(BytesIO(), encoding=encoding), width=width, color_system=None)
    with console.capture() as capture:
        console.print(waterfall(answer, width))
    return capture.get().splitlines()


def test_each_stage_is_a_bar_on_one_axis() -> None:
    router, cache, llm, axis = drawn(an_answer())
    assert router.startswith("router ▏")
    assert "0.1/10 ms ok demo-llm: fastest that fits" in router
    assert "30/60 ms ok miss" in cache
    assert "250/270 ms overrun demo-llm: cut off" in llm
    assert axis.rstrip().endswith("300 ms")
    assert llm.index("█") > cache.index("█")


def test_a_bar_is_as_long_as_its_time() -> None:
    stages = (StageReport("a", 75, 50, 0, "ok", ""), StageReport("b", 25, 25, 75, "ok", ""))
    answer = an_answer(stages=stages, total_ms=100.0, budget_ms=100.0, ttft_ms=None)
    first, second, _ = drawn(answer)
    spent, left, start = first.count("█"), first.count("░"), second.index("█") - len("b ")
    assert left == pytest.approx(spent / 2, abs=1)
    assert start == pytest.approx(spent * 1.5, abs=1)
    assert second.count("█") == pytest.approx(spent / 2, abs=1)


def test_the_first_token_is_marked_on_the_axis() -> None:
    *_, axis = drawn(an_answer())
    line = axis.strip().split()[0]
    assert line.index("▲") == int(75 / 300 * len(line))
    assert "▲" not in drawn(an_answer(ttft_ms=None))[-1]


@pytest.mark.parametrize(("budget_ms", "expected"), [(300.0, 300.0), (200.0, 280.0), (30_000.0, 280.0)])
def test_the_axis_ends_at_the_budget_unless_that_would_squeeze_the_bars(budget_ms: float, expected: float) -> None:
    assert axis_ms(an_answer(budget_ms=budget_ms)) == expected


def test_no_line_is_wider_than_the_screen_however_long_the_detail() -> None:
    stages = (StageReport("llm", 30_000, 2_500, 0, "replaced", "a long story of what was tried " * 9),)
    for width in (60, 80, 120):
        lines = drawn(an_answer(stages=stages, total_ms=2_500.0), width)
        assert len(lines) == 2
        assert max(map(len, lines)) <= width
        assert "…" in lines[0]


def test_a_stage_that_was_skipped_has_no_bar() -> None:
    stages = (StageReport("llm", 0, 0, 0, "skipped", "answered from the cache"),)
    line, _ = drawn(an_answer(stages=stages))
    assert not set(line) & set("█▏░")


def test_an_answer_that_took_no_measurable_time_is_drawn() -> None:
    assert drawn(an_answer(stages=(), total_ms=0.0, ttft_ms=0.0, budget_ms=0.0))


def test_a_terminal_without_unicode_gets_ascii() -> None:
    text = "".join(drawn(an_answer(), encoding="ascii"))
    assert text.isascii()
    assert "#" in text


@pytest.mark.parametrize(
    ("cells", "expected"), [(0, ""), (0.01, "▏"), (0.5, "▌"), (1, "█"), (2.25, "██▎"), (9, "████")]
)
def test_any_time_spent_is_visible_and_bars_stay_within_their_width(cells: float, expected: str) -> None:
    assert spent_cells(cells, 4, False) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0"), (0.44, "0.4"), (9.96, "10.0"), (12.3, "12"), (30_000, "30000")]
)
def test_times_are_short(value: float, expected: str) -> None:
    assert short(value) == expected
