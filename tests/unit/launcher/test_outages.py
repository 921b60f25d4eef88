"""`hedgerow up` has one line when a model begins to fail, and one when it answers again."""

from __future__ import annotations

import pytest

from launcher.outages import ModelState, Watch

States = dict[str, ModelState | None]
WELL: States = {"llm-m": ModelState("m")}
AWAY: States = {"llm-m": ModelState("m", "http://provider.test/v1", "connection refused")}
BEGAN = "WARNING model m at http://provider.test/v1: connection refused"
ENDED = "model m at http://provider.test/v1 answers again"


@pytest.mark.parametrize(
    ("known", "seen", "lines"),
    [
        ({}, [WELL, AWAY, AWAY, AWAY, *[WELL] * 10, AWAY], [BEGAN, ENDED, BEGAN]),
        ({}, [AWAY, WELL] * 100, [BEGAN]),
        (AWAY, [AWAY, *[WELL] * 10], [ENDED]),
        ({}, [AWAY, *[{"llm-m": None}] * 10, AWAY, {}, *[WELL] * 10], [BEGAN]),
    ],
    ids=["begins and ends", "now and then", "away at the start", "does not say, then leaves"],
)
def test_an_outage_and_its_end_are_one_line_each(known: States, seen: list[States], lines: list[str]) -> None:
    reported: list[str] = []
    watch = Watch(reported.append)
    watch.known(known)
    for states in seen:
        watch.look(states)
    assert reported == lines
