"""The ways of a comparison are asked in turns, and its result becomes tables."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
from rich.console import Console

from bench.asking import added, in_turns, milliseconds, timed
from bench.load import Arrival, Outcome, Reply
from bench.tables import tables


async def test_no_way_always_comes_after_the_same_one_and_the_warm_up_is_not_kept() -> None:
    asked: list[tuple[str, int]] = []

    async def ask(number: int, name: str) -> int:
        asked.append((name, number))
        return number

    found = await in_turns({name: partial(ask, name=name) for name in "abc"}, samples=6, warm_up=2)
    assert found == {name: list(range(6)) for name in "abc"}
    assert [number for _, number in asked] == [number for number in range(-2, 6) for _ in "abc"]
    orders = {"".join(name for name, at in asked if at == number) for number in range(6)}
    assert orders == {"".join(order) for order in itertools.permutations("abc")}


@pytest.mark.parametrize("reply", [Reply(Outcome.REFUSED), Reply(Outcome.TIMEOUT, 1.0), Reply(Outcome.OK)])
async def test_a_call_without_a_whole_answer_is_no_sample(reply: Reply) -> None:
    async def ask(arrival: Arrival) -> Reply:
        return reply

    with pytest.raises(RuntimeError, match=f"a call ended as .*{reply.outcome}"):
        await timed(ask, b"")


def test_the_overhead_of_a_path_is_the_difference_of_percentiles() -> None:
    direct, path = (milliseconds([(each / 1000, 2 * each / 1000) for each in range(by, by + 101)]) for by in (0, 5))
    assert direct == {"ttft_ms": {"p50": 50, "p95": 95, "p99": 99}, "total_ms": {"p50": 100, "p95": 190, "p99": 198}}
    assert added(path["total_ms"], direct["total_ms"]) == {"p50": 10, "p95": 10, "p99": 10}


def test_figures_with_the_same_names_are_one_table_that_is_no_wider_than_high() -> None:
    levels = [{"load": load, "ms": {"p50": 1.5, "p99": None}} for load in (1.0, 2.0, 5.0)]
    console = Console(width=60, record=True)
    console.print(tables({"n": 3, "direct": {"p50": 2, "p99": 4}, "levels": levels}))
    rows = [" ".join(line.split()) for line in console.export_text().splitlines()]
    apart = [row for row in rows if row]
    assert apart[:1] == ["n 3"]
    assert apart[1:6] == ["p50 p99", "direct 2 4", "levels 1 ms 1.5", "levels 2 ms 1.5", "levels 3 ms 1.5"]
    assert apart[6:] == ["load", "levels 1 1.0", "levels 2 2.0", "levels 3 5.0"]
