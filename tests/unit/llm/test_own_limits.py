"""Which limit of an answer's tokens is the service's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.llm.engine import Model, Original, Request, Sampling
from services.llm.servicer import OwnLimits

MODEL = Model("m", "vllm", 1_000, 999, "off", continues=True)


@pytest.mark.parametrize(
    ("asked", "default", "cap", "limit"),
    [
        (None, None, None, 0),
        (50, None, None, 0),
        (50, 20, None, 0),  # the default is for requests without it
        (None, 20, None, 20),
        (None, 20, 30, 20),
        (None, None, 30, 30),
        (50, 20, 30, 30),
        (30, None, 30, 0),
        (10, None, 30, 0),
        (None, 5_000, None, 0),  # more than the context holds
        (5_000, None, 4_000, 0),
    ],
)
def test_the_token_limit_is_the_settings_unless_the_request_asks_for_less(asked, default, cap, limit):
    request = Request((), Sampling(max_tokens=asked))
    assert OwnLimits(default, cap).of(request, MODEL, 100) == limit


def test_the_models_own_default_is_none_of_the_services():
    model = replace(MODEL, default_sampling=Sampling(max_tokens=40))
    assert OwnLimits(20, None).of(Request(()), model, 100) == 0
    assert OwnLimits(None, 30).of(Request(()), model, 100) == 30


def test_a_number_that_an_api_wants_is_the_services_but_not_in_a_callers_own_words():
    model = replace(MODEL, context_tokens=0, usual_max_tokens=4_096, apis=frozenset({"messages"}))
    own = Request((), original=Original("messages", b"{}"))
    assert OwnLimits().of(Request(()), model, 100) == 4_096
    assert OwnLimits().of(own, model, 100) == 0
    assert OwnLimits(20).of(own, model, 100) == 20
    assert OwnLimits(None, 30).of(own, model, 0) == 30
