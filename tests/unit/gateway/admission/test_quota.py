from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.admission import quota
from services.gateway.admission.quota import CONVERSATION, REQUEST, TURN, Allowance, QuotaExceeded, Quotas
from tests.clock import PausedClock, loop_clock


@pytest.fixture
def quotas(clock: PausedClock) -> Quotas:
    return Quotas(clock)


def refusal(quotas: Quotas, allowance: Allowance, tokens: int = 1, tenant: str = "acme") -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as caught:
        quotas.reserve(tenant, allowance, tokens)
    return caught.value


def test_requests_a_second_are_limited_after_the_burst(quotas, clock):
    allowance = Allowance(requests_per_s=2, requests_burst=3)
    for _ in range(3):
        quotas.reserve("acme", allowance, 1)
    refused = refusal(quotas, allowance)
    assert refused.retry_delay_s == pytest.approx(0.5)
    assert refused.message == "tenant acme: 2 requests a second; retry in 0.5 s"
    clock.advance(0.5)
    quotas.reserve("acme", allowance, 1)
    refusal(quotas, allowance)


def test_a_request_larger_than_a_minute_is_admitted_when_the_minute_is_whole(quotas, clock):
    allowance = Allowance(tokens_per_minute=60)
    quotas.reserve("acme", allowance, 1)
    assert refusal(quotas, allowance, tokens=120).retry_delay_s == pytest.approx(1)
    clock.advance(1)
    quotas.reserve("acme", allowance, 120)
    assert refusal(quotas, allowance, tokens=1).retry_delay_s == pytest.approx(61)


def test_a_new_allowance_holds_from_the_next_request_on_and_is_no_gift(quotas, clock):
    quotas.reserve("acme", Allowance(requests_per_s=1, requests_burst=1), 1)
    faster = Allowance(requests_per_s=4, requests_burst=8)
    assert refusal(quotas, faster).retry_delay_s == pytest.approx(0.25)
    clock.advance(0.5)
    quotas.reserve("acme", faster, 1)
    quotas.reserve("acme", faster, 1)
    refusal(quotas, faster)
    quotas.reserve("acme", Allowance(), 1)


def test_a_burst_that_was_raised_is_there_for_a_tenant_that_has_rested(quotas, clock):
    for _ in range(3):
        quotas.reserve("acme", Allowance(requests_per_s=1, requests_burst=3), 1)
    clock.advance(16)
    raised = Allowance(requests_per_s=1, requests_burst=9)
    for _ in range(9):
        quotas.reserve("acme", raised, 1)
    refusal(quotas, raised)


def test_a_refusal_names_the_limit_what_was_asked_and_the_debt(quotas):
    tokens, requests = Allowance(tokens_per_minute=60), Allowance(requests_per_s=2, requests_burst=1)
    quotas.reserve("acme", tokens, 10).settle(140)
    refused = refusal(quotas, tokens, tokens=26)
    assert refused.message == "tenant acme: 0 of 60 tokens a minute left and 80 owed, 26 needed; retry in 106.0 s"
    assert refused.metadata == {"quota": "tokens", "limit": "60", "value": "26", "left": "-80"}
    quotas.reserve("other", requests, 1)
    assert refusal(quotas, requests, tenant="other").metadata == {"quota": "requests", "limit": "2", "burst": "1"}
    quotas.reserve("third", Allowance(concurrency=1), 1)
    refused = refusal(quotas, Allowance(concurrency=1), tenant="third")
    assert refused.metadata == {"quota": "concurrency", "limit": "1", "value": "2"}


def test_a_limit_on_requests_at_once_counts_those_from_before_it(quotas):
    running = quotas.reserve("acme", Allowance(), 1)
    refusal(quotas, Allowance(concurrency=1))
    running.release()
    quotas.reserve("acme", Allowance(concurrency=1), 1)


@given(st.floats(0.1, 1e3), st.floats(1, 1e6), st.integers(1, 2_000_000), st.integers(0, 2_000_000))
def test_a_caller_that_retries_after_the_retry_delay_is_admitted(requests_per_s, tokens_per_minute, first, second):
    clock = PausedClock()
    allowance = Allowance(requests_per_s, requests_burst=1, tokens_per_minute=tokens_per_minute)
    quotas = Quotas(clock)
    quotas.reserve("acme", allowance, first).release()
    delays = []
    while len(delays) < 3:
        try:
            quotas.reserve("acme", allowance, second)
            break
        except QuotaExceeded as refused:
            delays.append(refused.retry_delay_s)
            clock.advance(delays[-1])
    assert 1 <= len(delays) <= 2  # once for each quota at most


def test_requests_admitted_elsewhere_count_for_the_quotas_of_this_gateway(quotas):
    allowance = Allowance(concurrency=1, tokens_per_minute=60)
    left = list[int]()
    booked = quotas.book("acme", allowance, 50, REQUEST, left.append)
    beyond = quotas.book("acme", allowance, 50, REQUEST, left.append)  # there is no slot and there are no tokens
    assert refusal(quotas, allowance).metadata["quota"] == "concurrency"
    booked.settle(20)
    beyond.settle(60)
    beyond.settle(60)
    assert left == [30, -10]
    refused = refusal(quotas, allowance, tokens=1)
    assert refused.retry_delay_s == pytest.approx(21)


@pytest.mark.parametrize(
    ("allowance", "limited"),
    [
        (Allowance(), False),
        (Allowance(requests_burst=3), False),
        (Allowance(requests_per_s=1), True),
        (Allowance(tokens_per_minute=1), True),
        (Allowance(concurrency=1), True),
    ],
)
def test_an_allowance_knows_whether_it_limits_anything(allowance, limited):
    assert allowance.limited is limited


def test_a_conversation_counts_once_for_concurrency_and_its_turns_do_not(quotas):
    allowance = Allowance(concurrency=1, requests_per_s=1, requests_burst=1)
    conversation = quotas.reserve("acme", allowance, 0, CONVERSATION)
    turn = quotas.reserve("acme", allowance, 1, TURN)
    with pytest.raises(QuotaExceeded) as refused:
        quotas.reserve("acme", allowance, 1, TURN)
    assert refused.value.metadata["quota"] == "requests"
    turn.settle(1)
    assert refusal(quotas, allowance).metadata["quota"] == "concurrency"
    conversation.settle(0)
    assert refusal(quotas, allowance).metadata["quota"] == "requests"


@pytest.mark.paused
async def test_waiters_for_the_end_of_a_request_are_notified_in_turn():
    quotas, allowance, notified = Quotas(loop_clock), Allowance(concurrency=1), list[str]()

    async def wait(name: str, tenant: str = "acme") -> None:
        await quotas.ended(tenant, 60)
        notified.append(name)

    reservation = quotas.reserve("acme", allowance, 1)
    waiting = [asyncio.create_task(wait(name)) for name in ("first", "second")]
    waiting.append(asyncio.create_task(wait("late", tenant="other")))
    await asyncio.sleep(1)
    assert notified == []
    reservation.settle(1)
    await asyncio.gather(*waiting)
    assert notified == ["first", "second", "late"]


def test_accounts_that_are_as_new_are_not_kept_for_every_name_that_ever_was(monkeypatch, quotas):
    monkeypatch.setattr(quota, "_MOST_IDLE", 10)
    for number in range(1_000):
        quotas.reserve(f"user-{number}", Allowance(), 100).settle(50)
    assert len(quotas._accounts) <= 11
