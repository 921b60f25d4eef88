"""Completions, read into the gateway's own contract: what is not read is refused, for no model gets it as written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.gateway.http.dialects.completions import read_completion
from services.gateway.http.fields import parse
from services.gateway.http.request_options import RequestOptions
from services.runtime.errors import InvalidInput


def read(**body: Any) -> RequestOptions:
    return read_completion(parse(json.dumps({"model": "m", "prompt": "Hello", **body}).encode()), {}, ["m"])


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("reasoning_effort", "high"),
        ("add_special_tokens", 0),
        ("made_up", True),
        ("logprobs", 0),
        ("service_tier", "flex"),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ],
)
def test_a_field_that_completions_do_not_read_is_refused_by_name(field: str, given: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^{field}: no(t supported| such field of completions), got "):
        read(**{field: given})


def test_fields_that_no_answer_depends_on_are_not_refused() -> None:
    own = {"user": "ann", "metadata": {"a": "b"}, "safety_identifier": "x", "prompt_cache_key": "k", "store": True}
    names = {"user": "ann", "safety_identifier": "x"}
    form = {"type": "json_schema", "json_schema": {"name": "f", "strict": True, "schema": {"type": "object"}}}
    plain = read(**names, response_format=form).request
    empty = {"tools": [], "logit_bias": None, "echo": False, "suffix": "", "logprobs": None, "best_of": 1}
    assert read(**own, **empty, response_format=form, hedgerow={"cache": "bypass"}).request.sampling == plain.sampling
    assert list(read(**own).request.end_user) == list(plain.end_user)


def test_the_fields_of_vllm_s_servers_are_read() -> None:
    sampling = read(top_k=5, min_p=0.5, max_tokens=9, stop=["x"], seed=1, logit_bias={"7": 1}).request.sampling
    assert (sampling.top_k, sampling.min_p, sampling.seed) == (5, 0.5, 1)
