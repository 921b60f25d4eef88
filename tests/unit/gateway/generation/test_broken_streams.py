"""Streams of models: those that break go on elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.gateway.upstream.balance import Locality
from services.gateway.upstream.fleet import Fleet
from services.runtime.errors import ServiceError, Unavailable
from tests.unit.gateway.generation.scene import GONE, RETRY, calls, play, says, too_busy
from tests.unit.gateway.scripted import ScriptedLlm, finish, text

pytestmark = pytest.mark.paused


@pytest.mark.parametrize("problem", [GONE, too_busy()], ids=["broken", "overloaded"])
def test_a_stream_that_breaks_goes_on_from_its_text_on_another_replica(problem: ServiceError):
    first, second = ScriptedLlm(text("Once upon "), 0.01, problem), ScriptedLlm(text("a time."), finish())
    scene = play(policies={"retry": RETRY}, m=[first, second])
    assert scene.words == "Once upon a time."
    assert second.requests[-1].prefix == "Once upon "
    assert second.requests[-1].messages == first.requests[-1].messages
    assert scene.report.resumed
    assert scene.report.carried_tokens == 1


@pytest.mark.parametrize("policies", [{"retry": {"max_share": 0}}, {"retry": RETRY}])
def test_a_broken_stream_without_another_replica_ends_with_its_error(policies):
    lone = ScriptedLlm(text("Once upon "), 0.01, GONE)
    scene = play(policies=policies, m=lone)
    assert (scene.words, scene.error.message, calls(lone)) == ("Once upon ", GONE.message, [1])


def test_a_silent_stream_counts_as_broken():
    silent = ScriptedLlm(text("Once upon "), None)
    scene = play({"budget_s": 60.0}, policies={"stall_ms": 2_000}, m=silent)
    assert isinstance(scene.error, Unavailable)
    assert scene.took_s == pytest.approx(2.0, abs=0.1)
    assert silent.calls[0].closed


@pytest.mark.parametrize(
    ("messages", "seconds"),
    [pytest.param(250, 0.0, id="a burst is read at once"), pytest.param(2_254, 1.0, id="then 2,000 messages a second")],
)
def test_a_model_that_writes_without_pause_is_read_at_a_bounded_rate(messages: int, seconds: float):
    scene = play({"budget_s": 60.0}, m=ScriptedLlm(*[text("a")] * messages, finish()))
    assert (scene.words, scene.error) == ("a" * messages, None)
    assert scene.took_s == pytest.approx(seconds, abs=0.02)


def test_a_silent_stream_goes_on_elsewhere_and_nothing_of_it_comes_twice():
    silent, other = ScriptedLlm(text("Once upon "), None), ScriptedLlm(0.5, text("a time."), finish())
    scene = play({"budget_s": 60.0}, policies={"stall_ms": 2_000, "retry": RETRY}, m=[silent, other])
    assert (scene.words, scene.error) == ("Once upon a time.", None)
    assert scene.decisions == [("failover", "started")]


def test_a_replica_that_is_silent_from_the_start_does_not_hold_up_the_rest_of_an_answer():
    broken, silent = ScriptedLlm(text("Once upon "), 0.01, GONE), ScriptedLlm(None)
    other = ScriptedLlm(0.5, text("a time."), finish())
    policies = {"stall_ms": 2_000, "retry": RETRY}
    scene = play({"budget_s": 60.0}, warm_up=5, policies=policies, m=[broken, silent, other])
    assert (scene.words, scene.error, scene.took_s) == ("Once upon a time.", None, pytest.approx(2.5, abs=0.1))
    assert scene.decisions == [("failover", "started"), ("failover", "failed"), ("failover", "started")]


def in_regions(*priorities: int) -> Callable[[Fleet], None]:
    """Puts the replicas of `m` where they belong."""

    def place(behind: Fleet) -> None:
        for replica, priority in zip(behind.pools["m"].replicas, priorities, strict=True):
            replica.locality = Locality(priority)

    return place


def test_when_two_of_a_region_have_failed_the_next_region_is_asked():
    dead, far = [ScriptedLlm(GONE) for _ in range(3)], says("far")
    scene = play(warm_up=5, policies={"retry": RETRY}, arrange=in_regions(0, 0, 0, 1), m=[*dead, far])
    assert (scene.words, scene.decisions) == ("far", [("retry", "started"), ("retry", "started")])
    assert calls(*dead, far) == [1, 1, 0, 1]


def test_a_stream_whose_region_died_goes_on_in_the_next():
    broken, dead = ScriptedLlm(text("Once upon "), 0.01, GONE), ScriptedLlm(GONE)
    far = ScriptedLlm(text("a time."), finish())
    scene = play(warm_up=5, policies={"retry": RETRY}, arrange=in_regions(0, 0, 1), m=[broken, dead, far])
    assert (scene.words, scene.error) == ("Once upon a time.", None)
    assert scene.decisions == [("failover", "started"), ("failover", "failed"), ("failover", "started")]
    assert scene.report.resumed
    assert far.requests[-1].prefix == "Once upon "


def test_a_replica_that_failed_as_the_hedge_is_not_called_again():
    dead = [ScriptedLlm(GONE), ScriptedLlm(GONE)]
    scene = play(warm_up=20, policies={"retry": RETRY}, m=dead)
    assert (scene.error.code, calls(*dead)) == (Unavailable.code, [1, 1])


@pytest.mark.parametrize(
    ("script", "flowed"),
    [
        pytest.param([0.5, text("a"), *5 * [0.1, text("b")], 0.1, finish()], (5, 0.5), id="a token each 100 ms"),
        pytest.param([0.5, text("a"), 0.1, text("b", 4), 9.0, finish("c")], (4, 0.1), id="the rest comes with the end"),
        pytest.param([0.5, finish("all of it")], (0, 0.0), id="one message"),
    ],
)
def test_the_token_rate_is_that_of_the_stream_without_what_is_only_counted_at_its_end(script, flowed):
    """Hidden reasoning of a provider is in the usage, and in the tokens of the last message."""
    script[-1].finish.usage.completion_tokens, script[-1].tokens = 2_000, 1_995
    seen = list[tuple[int, float]]()

    def note(behind: Fleet) -> None:
        behind.pools["m"].throughput_drop.add = lambda tokens, seconds: seen.append((tokens, seconds))

    play(arrange=note, m=ScriptedLlm(*script))
    assert seen == [(flowed[0], pytest.approx(flowed[1]))]
