"""proto ↔ domain."""

from __future__ import annotations

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.llm.engine import Chunk, Constraint, Finish, FinishReason, Message, Request, Sampling, Usage
from services.llm.servicer import to_request, to_response
from services.runtime.errors import InvalidInput


def test_what_is_not_set_stays_unset() -> None:
    asked = llm_pb2.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hello.")])
    assert to_request(asked) == Request((Message("user", "Hello."),), Sampling(), None)


def test_zero_is_a_value_and_not_unset() -> None:
    sampling = chat_pb2.Sampling(temperature=0, top_p=0, max_tokens=0, seed=0, stop=["a"])
    assert to_request(llm_pb2.GenerateRequest(sampling=sampling)).sampling == Sampling(0, 0, 0, ("a",), 0)


@pytest.mark.parametrize(
    ("given", "constraint"),
    [
        (chat_pb2.ResponseFormat(regex="a+"), Constraint("regex", "a+")),
        (chat_pb2.ResponseFormat(json_schema="{}"), Constraint("json_schema", "{}")),
        (chat_pb2.ResponseFormat(json_object=True), Constraint("json_object")),
        (chat_pb2.ResponseFormat(json_object=False), None),
        (chat_pb2.ResponseFormat(), None),
    ],
)
def test_at_most_one_constraint_is_taken(given: chat_pb2.ResponseFormat, constraint: Constraint | None) -> None:
    assert to_request(llm_pb2.GenerateRequest(response_format=given)).constraint == constraint


def test_the_beginning_of_an_answer_reaches_the_engine_as_it_came() -> None:
    assert to_request(llm_pb2.GenerateRequest(prefix=" The ")).prefix == " The "


def test_an_unknown_role_is_refused_by_its_place() -> None:
    asked = llm_pb2.GenerateRequest(messages=[chat_pb2.Message(content="Hello.")])
    with pytest.raises(InvalidInput, match=r"messages\[0\].role: system, user or assistant, got 0"):
        to_request(asked)


def test_the_end_carries_reason_usage_and_queue_time() -> None:
    chunk = Chunk("!", 1, Finish(FinishReason.LENGTH, Usage(1, 2, 3, 4, 5), queue_ms=0.0))
    usage = chat_pb2.Usage(
        prompt_tokens=1, completion_tokens=2, cached_prompt_tokens=3, drafted_tokens=4, accepted_tokens=5
    )
    finish = llm_pb2.Finish(reason=chat_pb2.FINISH_REASON_LENGTH, usage=usage, queue_ms=0.0)
    assert to_response(chunk) == llm_pb2.GenerateResponse(text="!", tokens=1, finish=finish)
    assert not to_response(Chunk("a", 1)).HasField("finish")
