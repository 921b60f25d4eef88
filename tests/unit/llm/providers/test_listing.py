"""Contexts in a server's list of models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.providers.context import listed_tokens

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
    assert listed_tokens(json.dumps({"object": "list", "data": rows} if wrapped else rows), "big") == tokens


@pytest.mark.parametrize(
    "listed", ["", "<html>", "3", '{"data": 3}', '{"data": [3, null, {"id": "small"}]}', "[[]]", "[" * 100_000]
)
def test_an_invalid_list_of_models_has_no_context_length(listed: str) -> None:
    assert listed_tokens(listed, "big") == 0
