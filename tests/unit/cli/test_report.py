"""The printed report of an answer."""

from __future__ import annotations

import json

from hedgerow import Answer, CacheReport, Label, Usage
from hedgerow_cli.report import as_object, report_lines
from tests.unit.cli.answers import TRACE_ID, an_answer


def test_people_read_what_came_how_fast_and_under_which_trace() -> None:
    assert report_lines(an_answer()) == [
        "demo-llm · stop · cache miss 0.42",
        "▲ first token 75 ms · total 280 of 300 ms · 71 tokens/s",
        f"trace {TRACE_ID}",
    ]


def test_the_report_has_what_is_special_about_an_answer() -> None:
    answer = an_answer(
        usage=Usage(12, 20, 0, 16, 12),
        degraded=("llm:budget",),
        finish_reason="budget",
        cache=CacheReport("bypass", None, ""),
    )
    assert report_lines(answer)[0] == (
        "demo-llm · budget · cache bypass · 12 of 16 drafted tokens accepted · degraded: llm:budget"
    )


def test_transcript_and_labels_come_first() -> None:
    sights = ((Label("red circle", 0.991), Label("red square", 0.009)), ())
    assert report_lines(an_answer(transcript="Which shape?", sights=sights))[:3] == [
        "transcript  Which shape?",
        "labels  red circle 0.99  red square 0.01",
        "labels  nothing",
    ]


def test_an_answer_from_the_cache_has_no_rate() -> None:
    answer = an_answer(usage=Usage(0, 0, 0, 0, 0), ttft_ms=0.2, total_ms=0.3)
    assert report_lines(answer)[1] == "▲ first token 0.2 ms · total 0.3 of 300 ms"


def test_programs_read_one_object_with_both_sides_of_the_measurement() -> None:
    said = json.loads(json.dumps(as_object(an_answer())))
    assert said["cache"] == {
        "verdict": "miss",
        "similarity": 0.42,
        "key": "",
        "reason": "",
        "category": "",
        "stale": False,
    }
    assert said["stages"][2] == {
        "name": "llm",
        "budget_ms": 270,
        "spent_ms": 250,
        "started_ms": 30,
        "outcome": "overrun",
        "detail": "demo-llm: cut off",
    }
    assert said["client"] == {"first_token_ms": 80, "per_output_token_ms": 10, "first_sentence_ms": 90, "total_ms": 285}
    fields = Answer.__dataclass_fields__.keys() - {"timings", "parsed"}
    assert sorted(said) == sorted([*fields, "client"])
