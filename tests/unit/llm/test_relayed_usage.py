"""Usage in relayed events of a provider whose cache several tenants share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.engine import Chunk
from services.llm.relayed_usage import without_cache
from services.llm.translate import to_response


@pytest.mark.parametrize(
    ("usage", "changed"),
    [
        (
            {"prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2, "audio_tokens": 1}},
            {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 1}},
        ),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 8, "cost": 0.2}, {"prompt_cache_hit_tokens": 0}),
        (
            {
                "input_tokens": 9,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 2,
                "cache_creation": {"ephemeral_5m_input_tokens": 2},
            },
            {
                "input_tokens": 15,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 0,
                "cache_creation": {"ephemeral_5m_input_tokens": 0},
            },
        ),
        ({"cache_read_input_tokens": None}, {}),
    ],
)
def test_cached_tokens_are_plain_ones_wherever_usage_stands(usage: dict[str, Any], changed: dict[str, Any]) -> None:
    usage = {"output_tokens": 3, **usage}
    plain = {name: given for name, given in {**usage, **changed}.items() if name != "cost"}
    for event in ({"usage": usage}, {"message": {"usage": usage}}, {"choices": [{"usage": usage}]}):
        shown = json.dumps(event).replace(json.dumps(usage), json.dumps(plain))
        assert json.loads(without_cache(json.dumps(event))) == json.loads(shown)


def test_times_that_reveal_cached_tokens_are_left_out() -> None:
    assert without_cache('{"id":"c","timings":{"cache_n":7,"prompt_n":1}}') == '{"id":"c"}'


@pytest.mark.parametrize("event", ['{"usage": null,  "choices":[]}', '{"type": "ping"}', '{"a":"\\"usage\\": {"}'])
def test_an_event_without_usage_stays_as_it_is(event: str) -> None:
    assert without_cache(event) == event


def test_events_have_cached_tokens_where_an_answer_has_them() -> None:
    event = '{"usage":{"prompt_tokens_details":{"cached_tokens":4}}}'
    chunk = Chunk("", 0, relayed=(event,))
    assert list(to_response(chunk).relayed) == [event.encode()]
    assert b'"cached_tokens":0' in to_response(chunk, report_cached=False).relayed[0]
