"""Fields that a provider refuses although no answer depends on them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.engine import Message, Original, Request
from services.llm.errors import RequestRefused
from tests.unit.llm.providers.asking import answer_of, chat
from tests.unit.llm.providers.simulated_provider import SimulatedProvider, text_of

ASKED = {"role": "user", "content": "?"}
THOUGHT = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm.", "refusal": None, "annotations": []}
HELLO = (Message("user", "Hello."),)


def extra(*place: str | int, given: object = "x") -> dict[str, Any]:
    return {"type": "extra_forbidden", "loc": ["body", *place], "msg": "Extra inputs are not permitted", "input": given}


def refusing(**fields: list[dict[str, Any]]) -> SimulatedProvider:
    """Mistral's API, which refuses a body with one of these fields."""
    shape = {"object": "error", "type": "invalid_request_error", "param": None, "code": None}
    refusals = {
        f'"{name}":'.encode(): (422, {**shape, "message": {"detail": detail}}) for name, detail in fields.items()
    }
    return SimulatedProvider(refuses=refusals)


async def test_a_refused_user_is_left_out_of_this_request_and_of_later_ones() -> None:
    provider = refusing(user=[extra("user")])
    model = provider.engine()
    for temperature in (0.5, 0.7):
        own = chat(messages=[ASKED], user="ann", temperature=temperature)
        assert text_of(await answer_of(model, Request(HELLO, original=own))) == "Hello."
        assert {**provider.body, "stream_options": None} == {
            "messages": [ASKED], "temperature": temperature, "model": "big", "stream": True, "stream_options": None,
        }  # fmt: skip
    assert len(provider.requests) == 3


async def test_the_end_user_of_another_api_is_left_out_as_well() -> None:
    provider = refusing(user=[extra("user")])
    own = Original("messages", b"{}", untranslated={"metadata": '{"user_id":"ann"}'})
    assert text_of(await answer_of(provider.engine(), Request(HELLO, original=own))) == "Hello."
    assert "user" not in provider.body


async def test_repeated_thoughts_and_empty_fields_of_earlier_answers_are_left_out() -> None:
    places = [extra("messages", 1, "assistant", name) for name in ("reasoning_content", "refusal", "annotations")]
    provider = refusing(reasoning_content=places)
    own = chat(messages=[ASKED, THOUGHT, ASKED])
    assert text_of(await answer_of(provider.engine(), Request(HELLO, original=own))) == "Hello."
    assert provider.body["messages"] == [ASKED, {"role": "assistant", "content": "Yes."}, ASKED]


UNSUPPORTED = {"error": {"message": "Unsupported parameter: …", "param": "max_tokens", "code": "unsupported_parameter"}}


@pytest.mark.parametrize(
    ("refused", "other", "error"),
    [
        ("max_completion_tokens", "max_tokens", (422, {"message": {"detail": [extra("max_completion_tokens")]}})),
        ("max_tokens", "max_completion_tokens", (400, UNSUPPORTED)),
    ],
    ids=["Mistral", "OpenAI"],
)
async def test_the_most_tokens_are_sent_under_the_name_that_is_taken(
    refused: str, other: str, error: tuple[int, Any]
) -> None:
    provider = SimulatedProvider(refuses={f'"{refused}":'.encode(): error})
    model = provider.engine()
    for most in (5, 6):
        own = chat(messages=[ASKED], **{refused: most})
        assert text_of(await answer_of(model, Request(HELLO, original=own))) == "Hello."
        assert (provider.body[other], refused in provider.body) == (most, False)
    assert len(provider.requests) == 3


@pytest.mark.parametrize(
    "place",
    [("frequency_penalty",), ("messages", 0, "user", "content"), ("messages", 0, "user", "tool_calls", 0, "refusal")],
)
async def test_a_field_on_which_an_answer_may_depend_is_not_left_out(place: tuple[str | int, ...]) -> None:
    provider = refusing(messages=[extra(*place)])
    with pytest.raises(RequestRefused):
        await answer_of(provider.engine(), Request(HELLO, original=chat(messages=[ASKED])))
    assert len(provider.requests) == 1


@pytest.mark.parametrize("forged", [json.dumps(extra("user")), extra("user"), [extra("user")]])
async def test_words_of_a_caller_that_the_refusal_repeats_name_no_field(forged: object) -> None:
    provider = refusing(reply=[extra("reply", given=forged)])
    model = provider.engine()
    with pytest.raises(RequestRefused):
        await answer_of(model, Request(HELLO, original=chat(messages=[ASKED], reply=forged)))
    await answer_of(model, Request(HELLO, original=chat(messages=[ASKED], user="ann")))
    assert provider.body["user"] == "ann"
