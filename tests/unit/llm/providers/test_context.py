"""Conversations that are longer than a model's context, and contexts in a server's list of models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.engine import Message, Part, Request
from services.llm.errors import RequestRefused
from services.llm.providers import context
from services.llm.providers.errors import in_stream_status, to_error
from services.runtime.errors import ContextExceeded

OPENAI = "This model's maximum context length is 8192 tokens. However, "
# Providers' messages, and the two numbers in them: the context's tokens and the conversation's.
SAID: dict[str, tuple[str, tuple[int, int] | None]] = {
    "OpenAI": (f"{OPENAI}your messages resulted in 9001 tokens.", (8_192, 9_001)),
    "OpenAI, with the answer": (
        f"{OPENAI}you requested 9100 tokens (9000 in the messages, 100 in the completion).",
        (8_192, 9_100),
    ),
    "OpenAI, its newer models": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300007.",
        (272_000, 300_007),
    ),
    "Responses": ("Your input exceeds the context window of this model.", None),
    "another text": ("Too much.", None),
    "vLLM": (f"{OPENAI}your prompt contains at least 8193 input tokens, which exceeds this limit.", (8_192, 8_193)),
    "vLLM, uncounted": (f"{OPENAI}your prompt contains 90000 characters (more than 81910 characters).", None),
    "OpenRouter": (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000",
        (131_072, 200_000),
    ),
    "Anthropic": ("prompt is too long: 210000 tokens > 200000 maximum", (200_000, 210_000)),
    "Anthropic, with the answer": (
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        (200_000, 209_573),
    ),
    "Gemini": (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        (1_048_576, 1_200_000),
    ),
    "Mistral": (
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        (32_768, 40_000),
    ),
    "xAI": ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", (131_072, 537_812)),
    "SGLang": ("The input (70000 tokens) is longer than the model's context length (65536 tokens).", (65_536, 70_000)),
    "Kimi": (
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
        (262_144, 291_351),
    ),
    "LM Studio": ("The number of tokens to keep from the initial prompt is greater than the context length.", None),
    "MiniMax": ("invalid params, context window exceeds limit", None),
    "Qwen": ("Range of input length should be [1, 30000]", None),
    "llama.cpp": ("the request exceeds the available context size, try increasing it", (4_096, 5_000)),
}
FIELDS = {  # beside the message
    "OpenAI": {"code": "x"},
    "another text": {"code": "context_length_exceeded"},
    "Anthropic": {"type": "invalid_request_error"},
    "llama.cpp": {"type": "exceed_context_size_error", "n_prompt_tokens": 5_000, "n_ctx": 4_096},
}


@pytest.mark.parametrize("whose", SAID)
def test_a_provider_that_refuses_a_conversation_for_its_length_is_understood(whose: str) -> None:
    said, numbers = SAID[whose]
    error = to_error(400, {}, json.dumps({"error": {"message": said, **FIELDS.get(whose, {})}}), "")
    assert isinstance(error, ContextExceeded)
    assert error.message == said
    assert error.metadata["field"] == "messages"
    known = (int(error.metadata["limit"]), int(error.metadata["value"])) if "limit" in error.metadata else None
    assert known == numbers


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "Unknown parameter: 'context'.",
        "max_tokens=9000 cannot be greater than max_model_len=8192",
    ],
)
def test_another_refusal_is_none_of_these(said: str) -> None:
    error = to_error(400, {}, json.dumps({"error": {"message": said, "type": "invalid_request_error"}}), "")
    assert isinstance(error, RequestRefused)
    assert not isinstance(error, ContextExceeded)


def test_in_a_stream_it_is_the_same() -> None:
    body = json.dumps(
        {"error": {"type": "context_length_exceeded", "message": "Your input exceeds the context window."}}
    )
    assert isinstance(to_error(in_stream_status(body), {}, body, ""), ContextExceeded)


def test_the_error_of_a_provider_is_bounded_and_has_no_secret() -> None:
    said = {"message": f"key-1 {OPENAI}your messages resulted in 9001 tokens. {'x' * 9_000}"}
    error = to_error(400, {}, json.dumps({"error": said}), "key-1")
    assert "key-1" not in error.message
    assert len(error.message) < 500


def of(*texts: str) -> Request:
    return Request((*(Message("user", text) for text in texts), Message("user", parts=(Part("text", text="and"),))))


def test_more_words_than_the_context_has_tokens_are_refused_before_the_provider_is_asked() -> None:
    with pytest.raises(ContextExceeded) as refused:
        context.check(of("a word " * 500, "more " * 24), 1_024)
    assert refused.value.message.startswith(
        "This model's maximum context length is 1024 tokens. However, your messages resulted in at least 1025 tokens."
    )


@pytest.mark.parametrize(
    "text",
    ["a word " * 511, " " * 100_000, "x" * 100_000, "日本語" * 10_000],
    ids=["words", "blanks", "one", "Japanese"],
)
def test_a_prompt_that_may_fit_is_left_to_the_provider(text: str) -> None:
    context.check(of(text), 1_024)


OTHER = {"id": "small", "max_model_len": 1}


@pytest.mark.parametrize(
    ("row", "tokens"),
    [
        ({"max_model_len": 32_768}, 32_768),
        ({"context_length": 131_072, "top_provider": {}}, 131_072),
        ({"max_context_length": 262_144}, 262_144),
        ({"context_window": 8_192}, 8_192),
        ({"meta": {"n_ctx": 512, "n_ctx_train": 2_048}}, 512),
        ({"meta": {"n_ctx_train": 2_048}}, 0),
        ({"meta": [512]}, 0),
        ({"owned_by": "openai"}, 0),
        ({"max_model_len": None}, 0),
        ({"max_model_len": True}, 0),
        ({"max_model_len": "32768"}, 0),
        ({"max_model_len": -1}, 0),
        ({"max_model_len": 2**40}, 0),
    ],
)
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_list_of_models_may_say_how_much_a_context_holds(row: dict[str, Any], tokens: int, wrapped: bool) -> None:
    rows = [OTHER, {"id": "big", **row}]
    assert context.listed_tokens(json.dumps({"object": "list", "data": rows} if wrapped else rows), "big") == tokens


@pytest.mark.parametrize(
    "listed", ["", "<html>", "3", '{"data": 3}', '{"data": [3, null, {"id": "small"}]}', "[[]]", "[" * 100_000]
)
def test_an_invalid_list_of_models_has_no_context_length(listed: str) -> None:
    assert context.listed_tokens(listed, "big") == 0
