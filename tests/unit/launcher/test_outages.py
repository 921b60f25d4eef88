"""`hedgerow up` has one line when a model begins to fail, and one when it answers again."""

from __future__ import annotations

from launcher.outages import ModelState, Watch

WELL = {"llm-m": ModelState("m")}
AWAY = {"llm-m": ModelState("m", "http://provider.test/v1", "connection refused")}
BEGAN = "WARNING model m at http://provider.test/v1: connection refused"
ENDED = "model m at http://provider.test/v1 answers again"


def test_an_outage_and_its_end_are_one_line_each() -> None:
    lines: list[str] = []
    watch = Watch(lines.append)
    for states in (WELL, AWAY, AWAY, AWAY, *[WELL] * 10, AWAY):
        watch.look(states)
    assert lines == [BEGAN, ENDED, BEGAN]


def test_a_provider_that_fails_now_and_then_is_one_line() -> None:
    lines: list[str] = []
    watch = Watch(lines.append)
    for _ in range(100):
        for states in (AWAY, WELL):
            watch.look(states)
    assert lines == [BEGAN]


def test_an_outage_of_the_start_is_not_told_again_and_its_end_is() -> None:
    lines: list[str] = []
    watch = Watch(lines.append)
    watch.known(AWAY)
    for states in (AWAY, *[WELL] * 10):
        watch.look(states)
    assert lines == [ENDED]


def test_a_service_that_does_not_say_keeps_its_state_and_one_that_left_has_none() -> None:
    lines: list[str] = []
    watch = Watch(lines.append)
    for states in (AWAY, *[{"llm-m": None}] * 10, AWAY, {}, *[WELL] * 10):
        watch.look(states)
    assert lines == [BEGAN]
