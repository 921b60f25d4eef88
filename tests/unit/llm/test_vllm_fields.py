"""Fields of vLLM's own server, out of a caller's own words."""

from __future__ import annotations

import json

import pytest

from services.llm import untranslated
from services.llm.engine import Message, Model, Original, Request
from services.llm.vllm_fields import TAKEN, fields
from services.runtime.errors import InvalidInput

MODEL = Model("m", "vllm", 0, 0, "", False, takes=TAKEN)


def asked(**own: object) -> Request:
    words = {name: json.dumps(value) for name, value in own.items()}
    return Request((Message("user", "Hi"),), original=Original("chat_completions", b"{}", untranslated=words))


def test_they_go_to_the_sampling_and_to_the_template() -> None:
    request = asked(bad_words=["no"], reasoning_effort="low", chat_template_kwargs={"enable_thinking": False})
    untranslated.check(request.original, MODEL)
    taken = fields(request)
    assert taken.sampling == {"bad_words": ["no"]}
    assert taken.template == {"reasoning_effort": "low", "enable_thinking": False}


def test_a_request_by_grpc_has_none() -> None:
    taken = fields(Request((Message("user", "Hi"),)))
    assert (taken.sampling, taken.template) == ({}, {})


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"skip_special_tokens": "yes"}, r"^skip_special_tokens: Input should be a valid boolean, got \"yes\""),
        ({"allowed_token_ids": [1, -2]}, r"^allowed_token_ids\.1: "),
        ({"reasoning_effort": "x" * 17}, "^reasoning_effort: "),
        ({"chat_template_kwargs": {"tools": []}}, "^chat_template_kwargs.tools: none that the engine itself sets"),
        ({"chat_template_kwargs": {"tokenizer": 1}}, "^chat_template_kwargs.tokenizer: none that the engine"),
        ({"chat_template_kwargs": {"model_config": 1}}, "^chat_template_kwargs.model_config: none that the engine"),
        ({"chat_template_kwargs": {"a": "x" * 9_000}}, "^chat_template_kwargs: at most 8192 bytes, got 90"),
    ],
)
def test_what_is_none_of_them_is_refused_by_name(own: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        fields(asked(**own))
