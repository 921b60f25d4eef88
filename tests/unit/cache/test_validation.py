"""Valid requests, and the errors for invalid ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache import validation
from services.cache.config import CacheSettings
from services.runtime.errors import InvalidInput
from tests.unit.cache.conftest import question

SETTINGS = CacheSettings(max_question_bytes=1_000, max_answer_bytes=100, max_ttl_ms=5_000, default_ttl_ms=1_000)
ASSISTANT = chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, content="Paris")


def answer(text: str = "Paris", finish_reason: int = chat_pb2.FINISH_REASON_STOP) -> cache_pb2.Answer:
    return cache_pb2.Answer(text=text, finish_reason=finish_reason)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (question("why?", tenant=""), "question.tenant"),
        (cache_pb2.Question(tenant="acme"), "question.messages"),
        (question(" \n"), "question.messages[0].content"),
        (question("x" * 1_001), "question"),
        (cache_pb2.Question(tenant="acme", messages=[ASSISTANT]), "question.messages[0].role"),
        (cache_pb2.Question(tenant="acme", messages=[chat_pb2.Message(content="x")]), "question.messages[0].role"),
    ],
)
def test_a_wrong_question_is_refused_by_the_name_of_the_field(wrong: cache_pb2.Question, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        validation.check_question(wrong, SETTINGS)
    assert refusal.value.metadata["field"] == field


@pytest.mark.parametrize(
    ("wrong", "field", "value"),
    [
        (answer(text=""), "answer.text", "0 characters"),
        (answer(text="x" * 101), "answer", "105 bytes"),
        (answer(finish_reason=chat_pb2.FINISH_REASON_BUDGET), "answer.finish_reason", "FINISH_REASON_BUDGET"),
        (answer(finish_reason=chat_pb2.FINISH_REASON_INTERRUPTED), "answer.finish_reason", "FINISH_REASON_INTERRUPTED"),
        (answer(finish_reason=chat_pb2.FINISH_REASON_UNSPECIFIED), "answer.finish_reason", "FINISH_REASON_UNSPECIFIED"),
        (answer(finish_reason=99), "answer.finish_reason", "99"),
    ],
)
def test_only_complete_answers_are_kept(wrong: cache_pb2.Answer, field: str, value: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        validation.check_answer(wrong, SETTINGS)
    assert (refusal.value.metadata["field"], refusal.value.metadata["value"]) == (field, value)


@pytest.mark.parametrize("reason", [chat_pb2.FINISH_REASON_STOP, chat_pb2.FINISH_REASON_LENGTH])
def test_an_answer_that_ended_or_reached_its_length_is_kept(reason: int) -> None:
    validation.check_answer(answer(finish_reason=reason), SETTINGS)


@pytest.mark.parametrize(("asked_for", "given"), [(None, 1_000), (1, 1), (9_999_999, 5_000)])
def test_the_time_to_live_is_the_callers_within_the_limit(asked_for: int | None, given: int) -> None:
    assert validation.check_ttl_ms(cache_pb2.StoreRequest(ttl_ms=asked_for), SETTINGS) == given


@pytest.mark.parametrize(
    ("check", "wrong", "field"),
    [
        (partial(validation.check_ttl_ms, settings=SETTINGS), cache_pb2.StoreRequest(ttl_ms=0), "ttl_ms"),
        *[
            (validation.check_min_similarity, cache_pb2.LookupRequest(min_similarity=each), "min_similarity")
            for each in (0.49, 1.01, float("nan"), float("inf"), -1)
        ],
        *[
            (validation.check_target, cache_pb2.InvalidateRequest(**each), ".*(key|tenant)")
            for each in ({}, {"key": "AB"}, {"tenant": ""})
        ],
        *[(validation.check_texts, each, "texts") for each in ([], ["x"] * 257, ["x", " "])],
    ],
)
def test_a_value_out_of_range_is_refused_by_the_name_of_the_field(check: Any, wrong: Any, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{field}"):
        check(wrong)


def test_a_question_for_exact_hits_alone_gets_no_other() -> None:
    asked = cache_pb2.Question(exact_only=True)
    for said in (None, 0.6):
        request = cache_pb2.LookupRequest(question=asked, min_similarity=said)
        assert validation.check_min_similarity(request) == 1


@pytest.mark.parametrize("name", ["max_ttl_ms", "stale_ms"])
def test_a_time_that_no_database_can_add_to_the_present_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ValueError, match="less than or equal to 3153600000000"):
        CacheSettings(**{name: 2**63 - 1})
