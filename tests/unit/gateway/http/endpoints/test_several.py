"""Several answers to one question: what each is asked, how many there may be, and what they are together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.quota import Allowance
from services.gateway.errors import refuses_choices
from services.gateway.http.endpoints.several import AskedAlone, check_bytes, check_choices, separate, together
from services.gateway.http.fields import parse
from services.gateway.http.request_options import RequestOptions
from services.runtime.errors import InvalidInput
from tests.clock import PausedClock
from tests.unit.gateway.answer.scene import EVERYTHING

BODY = b'{"model": "m", "n": 2, "seed": 5, "temperature": 0.5}'


def asked(seed: int = 5) -> list[pb.GenerateRequest]:
    original = chat_pb2.Original(api=chat_pb2.API_CHAT_COMPLETIONS, body=BODY, untranslated={"n": "2", "user": '"u"'})
    sampling = chat_pb2.Sampling(seed=seed)
    request = pb.GenerateRequest(original=original, sampling=sampling, idempotency_key="once")
    return separate(RequestOptions(request, choices=2), parse(BODY))


def test_each_is_a_request_of_its_own_without_n_and_past_the_cache() -> None:
    one, other = asked()
    assert [json.loads(each.original.body) for each in (one, other)] == [
        {"model": "m", "seed": seed, "temperature": 0.5} for seed in (5, 6)
    ]
    assert {**one.original.untranslated} == {"user": '"u"'}
    assert (one.sampling.seed, other.sampling.seed) == (5, 6)
    assert one.cache.bypass
    assert other.cache.bypass
    assert one.idempotency_key == other.idempotency_key == ""


def test_a_seed_stays_within_64_bits() -> None:
    assert [each.sampling.seed for each in asked(2**63 - 1)] == [2**63 - 1, 2**63 - 2]


@pytest.mark.parametrize(
    ("allowance", "most"),
    [
        (Allowance(), 16),
        (Allowance(concurrency=3), 3),
        (Allowance(requests_per_s=1, requests_burst=5), 5),
        (Allowance(concurrency=100), 16),
    ],
)
def test_no_more_are_asked_for_than_can_be_admitted_together(allowance: Allowance, most: int) -> None:
    tenant = replace(EVERYTHING, allowance=allowance)
    check_choices(most, tenant)
    with pytest.raises(InvalidInput, match=f"n: at most {most}, .*got {most + 1}"):
        check_choices(most + 1, tenant)


def test_the_cost_of_several_answers_is_their_sum() -> None:
    used = chat_pb2.Usage(prompt_tokens=3, completion_tokens=2, reasoning_tokens=1)
    one = pb.Final(text="a", usage=used, cost_usd=0.25, total_ms=5, ttft_ms=3, degraded=["a"])
    other = pb.Final(text="b", usage=used, cost_usd=0.5, total_ms=9, ttft_ms=2, degraded=["b", "a"])
    both = together([one, other])
    assert both.usage == chat_pb2.Usage(prompt_tokens=6, completion_tokens=4, reasoning_tokens=2)
    assert (both.cost_usd, both.total_ms, both.ttft_ms) == (0.75, 9, 2)
    assert list(both.degraded) == ["a", "b"]


def test_only_the_gateways_own_refusal_of_n_is_split_into_several_requests() -> None:
    assert refuses_choices(InvalidInput("n", "no such field of model m", 2))
    assert not refuses_choices(InvalidInput("stop", "at most 8", 9))
    refused = InvalidInput("n", "1", 2)
    refused.metadata["provider_error"] = "{}"
    assert not refuses_choices(refused)


def test_a_model_that_refused_is_asked_again_after_a_minute() -> None:
    clock = PausedClock()
    alone = AskedAlone(clock)
    alone.note("m")
    assert "m" in alone
    assert "other" not in alone
    clock.advance(61)
    assert "m" not in alone


def test_the_requests_for_all_answers_take_no_more_than_a_body_may() -> None:
    order = RequestOptions(pb.GenerateRequest(model="m" * 1_000), choices=4)
    size = order.request.ByteSize()
    check_bytes(order, 4 * size)
    with pytest.raises(InvalidInput, match=f"n: at most 3 for a request of {size} bytes.*, got 4"):
        check_bytes(order, 4 * size - 1)
