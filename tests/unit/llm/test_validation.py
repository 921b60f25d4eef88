"""What is refused before an engine sees it."""

from __future__ import annotations

import math

import pytest

from services.llm.engine import Constraint, Message, Request, Sampling
from services.llm.validation import check
from services.runtime.errors import InvalidInput

HELLO = (Message("user", "Hello."),)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(()), "messages: 1 or more, got 0"),
        (Request((Message("user", ""),)), "messages[0].content: 1 or more characters, got 0"),
        (Request((*HELLO, Message("assistant", "Hi."))), "messages[1].role: the last one is the user's, got assistant"),
        (Request(HELLO, Sampling(temperature=-0.1)), "sampling.temperature: 0 to 2, got -0.1"),
        (Request(HELLO, Sampling(temperature=math.nan)), "sampling.temperature: 0 to 2, got nan"),
        (Request(HELLO, Sampling(top_p=0.0)), "sampling.top_p: above 0 to 1, got 0.0"),
        (Request(HELLO, Sampling(top_p=1.1)), "sampling.top_p: above 0 to 1, got 1.1"),
        (Request(HELLO, Sampling(max_tokens=0)), "sampling.max_tokens: 1 or more, got 0"),
        (Request(HELLO, Sampling(stop=("a",) * 9)), "sampling.stop: at most 8, got 9"),
        (Request(HELLO, Sampling(stop=("a", ""))), "sampling.stop[1]: 1 to 64 characters, got 0"),
        (Request(HELLO, Sampling(stop=("a" * 65,))), "sampling.stop[0]: 1 to 64 characters, got 65"),
        (
            Request(HELLO, constraint=Constraint("json_object"), prefix='{"a"'),
            "prefix: none together with response_format, got 4 characters",
        ),
    ],
)
def test_a_refusal_names_the_field_the_limit_and_the_value(request_: Request, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(request_)
    assert caught.value.message == said


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0, 1, 1, ("a" * 64,) * 8, -1), Sampling(2, 1e-9)])
def test_the_limits_themselves_are_allowed(sampling: Sampling) -> None:
    check(Request(HELLO, sampling))
    check(Request(HELLO, sampling, prefix="Hi"))
