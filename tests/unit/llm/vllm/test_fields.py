"""Fields of vLLM's own server, out of a caller's own words."""

from __future__ import annotations

import json

import pytest

from services.llm import untranslated
from services.llm.engine import Message, Model, Original, Request
from services.llm.vllm.fields import TAKEN, fields
from services.runtime.errors import InvalidInput

MODEL = Model("m", "vllm", 0, 0, "", False, takes=TAKEN)


def asked(**own: object) -> Request:
    words = {name: json.dumps(value) for name, value in own.items()}
    return Request((Message("user", "Hi"),), original=Original("chat_completions", b"{}", untranslated=words))


def test_vllm_fields_go_to_the_sampling_and_the_template() -> None:
    request = asked(bad_words=["no"], reasoning_effort="low", chat_template_kwargs={"enable_thinking": False})
    untranslated.check(request.original, MODEL)
    taken = fields(request)
    assert taken.sampling == {"bad_words": ["no"]}
    assert taken.template == {"reasoning_effort": "low", "enable_thinking": False}
    assert fields(asked(reasoning_effort="none")).template == {"reasoning_effort": "none", "enable_thinking": False}
    assert fields(asked(reasoning_effort="low")).template == {"reasoning_effort": "low", "enable_thinking": True}


def test_a_request_by_grpc_has_none() -> None:
    taken = fields(Request((Message("user", "Hi"),)))
    assert (taken.sampling, taken.template) == ({}, {})


def test_a_value_that_says_what_is_so_is_taken() -> None:
    request = asked(include_reasoning=True, priority=0, length_penalty=1, echo=False)
    untranslated.check(request.original, MODEL)
    assert (fields(request).sampling, fields(request).template) == ({}, {})


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"skip_special_tokens": "yes"}, r"^skip_special_tokens: Input should be a valid boolean, got \"yes\""),
        ({"allowed_token_ids": [1, -2]}, r"^allowed_token_ids\.1: "),
        ({"reasoning_effort": "x" * 17}, "^reasoning_effort: "),
        ({"include_reasoning": False}, "^include_reasoning: true, with this engine, got false"),
        ({"add_generation_prompt": False}, "^add_generation_prompt: true, with this engine, got false"),
        ({"priority": 7}, "^priority: 0, with this engine, got 7"),
        ({"length_penalty": 2}, "^length_penalty: 1.0, with this engine, got 2"),
        ({"chat_template_kwargs": {"tools": []}}, "^chat_template_kwargs.tools: none that the engine itself sets"),
        ({"chat_template_kwargs": {"tokenizer": 1}}, "^chat_template_kwargs.tokenizer: none that the engine"),
        ({"chat_template_kwargs": {"model_config": 1}}, "^chat_template_kwargs.model_config: none that the engine"),
        ({"chat_template_kwargs": {"a": "x" * 9_000}}, "^chat_template_kwargs: at most 8192 bytes, got 90"),
    ],
)
def test_unknown_fields_are_refused_by_name(own: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        fields(asked(**own))
