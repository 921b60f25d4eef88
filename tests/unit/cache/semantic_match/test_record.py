"""The verification records of a tenant can be added, written and read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache.semantic_match import record
from services.cache.semantic_match.record import Record, Records, ThresholdDecision
from services.cache.semantic_match.traffic import Traffic

STEPS = st.lists(
    st.one_of(st.booleans(), st.tuples(st.floats(0.7, 1), st.booleans(), st.booleans())), min_size=1, max_size=300
)


def recorded(steps: list[bool | tuple[float, bool, bool]]) -> Record:
    """A record that has seen lookups and verdicts."""
    kept = Record({1.0: ThresholdDecision(0.95)})
    tell(kept, steps)
    return kept


def tell(kept: Record, steps: list[bool | tuple[float, bool, bool]]) -> None:
    for step in steps:
        kept.look_up(step) if isinstance(step, bool) else kept.verify(*step)


@settings(deadline=None)
@given(steps=STEPS, cuts=st.lists(st.integers(0, 300)), data=st.data())
def test_replicas_that_add_what_is_new_come_to_what_one_alone_would_have(
    steps: list[bool | tuple[float, bool, bool]], cuts: list[int], data: st.DataObject
) -> None:
    shared, replicas = (
        Record({1.0: ThresholdDecision(0.95)}),
        [Record({1.0: ThresholdDecision(0.95)}), Record({1.0: ThresholdDecision(0.95)})],
    )
    ends = sorted({cut for cut in cuts if cut < len(steps)} | {len(steps)})
    for start, end in zip([0, *ends], ends, strict=False):
        one = data.draw(st.sampled_from(replicas))
        tell(one, steps[start:end])
        new = one.take()
        shared._all.add(new)
        one.replace(Record.of(shared.row))
    alone = recorded(steps)
    assert one.row[0] == alone.row[0]
    assert one.row[1:5] == pytest.approx(alone.row[1:5])
    assert one.wrong() == alone.wrong()
    assert one.wrong_hits == alone.wrong_hits


@settings(deadline=None)
@given(before=STEPS, meanwhile=STEPS)
def test_samples_during_an_exchange_count_once(
    before: list[bool | tuple[float, bool, bool]], meanwhile: list[bool | tuple[float, bool, bool]]
) -> None:
    kept = recorded(before)
    shared = Record({1.0: ThresholdDecision(0.95)})
    shared._all.add(kept.take())
    tell(kept, meanwhile)
    kept.replace(Record.of(shared.row))
    alone = recorded([*before, *meanwhile])
    assert kept.row[0] == alone.row[0]
    assert kept.row[1:5] == pytest.approx(alone.row[1:5])


@settings(deadline=None)
@given(steps=STEPS)
def test_a_record_that_was_written_down_goes_on_where_it_was(steps: list[bool | tuple[float, bool, bool]]) -> None:
    kept = recorded(steps)
    again = Record.of(kept.row)
    assert (again.row, again.wrong(), again.has_news) == (kept.row, kept.wrong(), False)


def test_samples_that_are_shared_stay_within_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "SAMPLES", 100)
    kept = Record({1.0: ThresholdDecision(0.95)})
    for _ in range(5):
        tell(kept, [(0.9, True, False)] * 70)
        kept.take()
        kept.replace(Record.of(kept.row))
        assert kept.count == kept.wrong_hits <= 100


GOOD = recorded([True, (0.9, True, False)]).row


@pytest.mark.parametrize(
    "row",
    [
        ("text", *GOOD[1:]),
        (b"\xff", *GOOD[1:]),
        (b"\xff\xff", *GOOD[1:]),
        (bytes(10_002), *GOOD[1:]),
        (GOOD[0], math.nan, *GOOD[2:]),
        (GOOD[0], b"many", *GOOD[2:]),
        (GOOD[0], 1.0, 2.0, *GOOD[3:]),
        (*GOOD[:5], -1.0, *GOOD[6:]),
        (*GOOD[:5], None, *GOOD[6:]),
        (*GOOD[:8], b"many"),
        (*GOOD[:8], -1.0),
        (None,) * 9,
        (),
    ],
)
def test_an_invalid_record_is_refused(row: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"samples|number|columns|candidates|convert"):
        Record.of(row)


def test_records_may_be_used_and_added_while_they_are_read() -> None:
    records, first, more = Records(), Traffic("acme"), Traffic("globex", "dosages")
    for traffic in (first, Traffic("acme", "chat"), more):
        records.use(traffic, 0.95)
    read = iter(records)
    next(read)
    records.use(first, 0.95)  # by a lookup, while a thread writes the metrics
    records.use(Traffic("initech"), 0.95)
    assert [traffic for traffic, _ in read] == [Traffic("acme", "chat"), more]
