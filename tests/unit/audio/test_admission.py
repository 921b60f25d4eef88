"""A stream that would make others late is refused, and the tenant with the most streams gives way."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Self

import pytest

from services.audio.admission import Admission, Need
from services.audio.errors import GaveWay, RecordingsFull, StreamsFull
from services.audio.scheduler import FairMember
from tests.clock import PausedClock


class AdmissionControl:
    """An admission whose clock and load are set by the test."""

    def __init__(self, need: float, **limits: int | float):
        self.clock, self.measured, self.inside = PausedClock(), 0.0, ExitStack()
        self.ended: list[Exception] = []
        needs = {"local_agreement": Need(need, 1.0), "windows": Need(need / 2, 1.0)}
        defaults = {"max_streams": 100, "max_recordings": 2, "max_load": 0.85}
        self.admission = Admission(self, needs, **{**defaults, **limits}, clock=self.clock)  # type: ignore[arg-type]

    def load(self, streams_only: bool = False) -> float:
        assert streams_only
        return self.measured

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """All that has been let in leaves."""
        self.inside.close()

    def enter(self, policy: str = "local_agreement", tenant: str = ""):
        self.clock.advance(0.001)
        return self.inside.enter_context(self.admission.stream(policy, tenant, self.ended.append))

    def open(self, **tenants: int) -> None:
        for tenant, number in tenants.items():
            for _ in range(number):
                self.enter(tenant=tenant)

    def record(self, tenant: str) -> FairMember:
        self.clock.advance(0.001)
        return self.inside.enter_context(self.admission.recording(tenant))

    def opened(self) -> Counter[str]:
        return Counter(stream.tenant for stream in self.admission._streams)


@pytest.mark.parametrize(
    ("need", "limits", "fit", "why"),
    [
        (0.01, {"max_streams": 2}, 2, "streams: at most 2, got one more"),
        (0.3, {}, 2, "load: at most 0.85 of the model's time, got 0.90 with one more stream"),
        (0.5, {"workers": 4}, 6, "load: at most 0.85"),
        (3, {}, 1, "load: at most 0.85"),
    ],
    ids=["a number", "the time of the model", "more workers bear more", "the first one is let in whatever it needs"],
)
def test_one_stream_too_many_is_refused(need: float, limits: dict[str, int], fit: int, why: str):
    with AdmissionControl(need, **limits) as control:
        control.open(a=fit)
        with pytest.raises(StreamsFull, match=why) as caught:
            control.enter(tenant="a")
        assert caught.value.retry_delay_s
        assert control.admission.streams == fit
    assert control.admission.streams == 0


def test_a_stream_that_needs_less_finds_time_where_another_does_not():
    with AdmissionControl(need=0.3) as control:
        control.open(a=2)
        control.enter("windows", "a")  # needs half of it
        control.inside.close()
        control.enter()


def test_a_load_that_is_measured_counts_too():
    with AdmissionControl(need=0.01) as control:
        control.enter()
        control.measured = 0.9
        with pytest.raises(StreamsFull, match=r"got 0.90"):
            control.enter()


def test_while_a_stream_is_behind_no_other_is_let_in():
    with AdmissionControl(need=0.01) as control:
        slow = control.enter()
        control.admission.behind(slow, 1.4)
        with pytest.raises(StreamsFull, match=r"streams behind by more than 1 s: none, got 1"):
            control.enter()
        control.clock.advance(2.5)
        control.enter()


def test_the_need_of_a_stream_is_learned_from_its_work():
    with AdmissionControl(need=0.4) as control:
        stream = control.enter()
        for _ in range(60):
            control.admission.worked(stream, took_s=0.1)
        for _ in range(7):  # and the first one: 8 × 0.1
            control.enter()
        with pytest.raises(StreamsFull):
            control.enter()


def test_one_slow_step_of_a_new_stream_refuses_no_other():
    with AdmissionControl(need=0.2) as control:
        control.admission.worked(control.enter(), took_s=2.0)  # 2 × (0.2 + 0.18)
        control.enter()


@pytest.mark.parametrize(
    ("open_", "comes", "then"),
    [
        ({"a": 8}, "b", {"a": 7, "b": 1}),
        ({"a": 5, "b": 3}, "b", {"a": 4, "b": 4}),
        ({"a": 4, "b": 4}, "b", None),
        ({"a": 4, "b": 4}, "c", {"a": 3, "b": 4, "c": 1}),
        ({"a": 3, "b": 3, "c": 2}, "c", None),  # 8 / 3 are not 3
        ({"a": 8}, "a", None),
        ({"a": 2, **dict.fromkeys("bcdefg", 1)}, "h", {"a": 1, **dict.fromkeys("bcdefgh", 1)}),
        (dict.fromkeys("abcdefgh", 1), "i", None),
    ],
)
def test_without_a_free_slot_the_tenant_with_the_most_gives_one_up_for_a_tenant_within_its_share(open_, comes, then):
    with AdmissionControl(need=0.01, max_streams=8) as control:
        control.open(**open_)
        if then is None:
            with pytest.raises(StreamsFull):
                control.enter(tenant=comes)
            assert (control.opened(), control.ended) == (open_, [])
        else:
            control.enter(tenant=comes)
            assert control.opened() == then
            (error,) = control.ended
            assert isinstance(error, GaveWay)
            assert error.retry_delay_s
    assert control.admission.streams == 0


def test_the_stream_that_was_silent_for_the_longest_gives_way():
    with AdmissionControl(need=0.01, max_streams=3) as control:
        streams = [control.enter(tenant="a") for _ in range(3)]
        for speaking in (streams[0], streams[2]):
            control.clock.advance(1)
            control.admission.spoke(speaking)
        control.enter(tenant="b")
        assert streams[1] not in control.admission._streams
        assert "an even share of 2 tenants is 1.5, got 3; this stream was preempted" in str(control.ended[0])


@pytest.mark.parametrize("why", ["load", "behind"])
def test_a_stream_gives_way_when_load_or_backlog_is_too_high(why: str):
    with AdmissionControl(need=0.3 if why == "load" else 0.01) as control:
        control.open(a=2)
        if why == "behind":
            control.admission.behind(next(iter(control.admission._streams)), 3)
        control.enter(tenant="b")
        assert control.opened() == {"a": 1, "b": 1}


def test_recordings_have_a_limit_of_their_own():
    with AdmissionControl(need=3) as control:
        control.enter()
        control.inside.enter_context(control.admission.recording())
        control.inside.enter_context(control.admission.recording())
        with pytest.raises(RecordingsFull, match="recordings: at most 2 at once"):
            control.inside.enter_context(control.admission.recording())
    with control.admission.recording():
        pass


def test_the_latest_recording_of_the_tenant_with_the_most_gives_way():
    with AdmissionControl(need=0.01, max_recordings=3) as control:
        held = [control.record("a") for _ in range(3)]
        with pytest.raises(RecordingsFull):
            control.record("a")
        control.record("b")
        assert [isinstance(member.error, GaveWay) for member in held] == [False, False, True]
        assert "recordings: an even share of 2 tenants is 1.5, got 3; this recording was preempted" in str(
            held[2].error
        )
        with pytest.raises(RecordingsFull):
            control.record("b")
