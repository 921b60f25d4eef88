"""proto ↔ domain."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.llm.engine import Chunk, Constraint, Finish, FinishReason, Message, Model, Request, Sampling, Usage
from services.llm.servicer import LLMServicer, to_request, to_response
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput
from services.runtime.rpc.boundary import Call


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


def test_the_salt_reaches_the_engine_as_it_came() -> None:
    assert to_request(llm_pb2.GenerateRequest(cache_salt="0f")).cache_salt == "0f"


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


@pytest.mark.parametrize(("salts", "salt", "told"), [(False, "a", 0), (False, "", 64), (True, "a", 64)])
async def test_what_was_cached_is_told_only_where_it_cannot_be_others_prompts(
    salts: bool, salt: str, told: int
) -> None:
    asked = llm_pb2.GenerateRequest(
        messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hi.")], cache_salt=salt
    )
    servicer = LLMServicer(_Caching(salts))  # type: ignore[arg-type]
    replies = [reply async for reply in servicer.Generate(asked, Call((), Deadline.never(), INVALID_SPAN))]
    assert (replies[-1].finish.usage.cached_prompt_tokens, replies[-1].finish.usage.prompt_tokens) == (told, 100)


class _Caching:
    """An engine that has 64 of a prompt's 100 tokens in its cache already."""

    def __init__(self, salts: bool):
        self._salts = salts

    def describe(self) -> Model:
        return Model("m", "openai", 0, 10, "", False, self._salts)

    async def generate(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        yield Chunk("Hi.", 1, Finish(FinishReason.STOP, Usage(100, 1, 64)))
