"""Quotas of tenants, whatever is asked and ends in whatever order, on a clock that jumps."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.gateway.admission import quota
from services.gateway.admission.quota import REQUEST, TURN, Allowance, QuotaExceeded, Quotas, Reservation
from tests.clock import PausedClock
from tests.examples import examples

SEEDED = settings(max_examples=examples(60), stateful_step_count=30, derandomize=True, deadline=None, database=None)
JUMPS = st.sampled_from([0.0, 1e-6, 0.001, 0.1, 1.0, 10.0, 59.9, 3_600.0, 1e9])
TENANTS = st.sampled_from(["a", "b", "c", "d"])


class Bucket:
    """A bucket as the documentation has it."""

    def __init__(self, rate_per_s: float, burst: float):
        self.rate_per_s, self.burst, self.level = rate_per_s, burst, burst

    def pass_time(self, seconds: float) -> None:
        self.level = min(self.burst, self.level + seconds * self.rate_per_s)


class QuotaMachine(RuleBasedStateMachine):
    """Four tenants; at most two idle ones are remembered."""

    ALLOWANCE = Allowance(requests_per_s=2, requests_burst=5, tokens_per_minute=600, concurrency=3)

    def __init__(self) -> None:
        super().__init__()
        self.clock = PausedClock()
        self.quotas = Quotas(self.clock)
        self.running = list[tuple[str, Reservation, int, int]]()  # with estimate and places
        self.requests = {name: Bucket(2, 5) for name in "abcd"}
        self.tokens = {name: Bucket(10, 600) for name in "abcd"}

    @rule(seconds=JUMPS)
    def time_passes(self, seconds: float):
        self.clock.advance(seconds)
        for bucket in [*self.requests.values(), *self.tokens.values()]:
            bucket.pass_time(seconds)

    @rule(tenant=TENANTS, tokens=st.integers(0, 900), claim=st.sampled_from([REQUEST, TURN]))
    def asks(self, tenant: str, tokens: int, claim: quota.Claim):
        requests, left, held = self.requests[tenant], self.tokens[tenant], self.held(tenant)
        wanted = min(tokens, 600)
        fits = left.level >= wanted - 1e-3 and requests.level >= 1 - 1e-3 and not (claim.slots and held >= 3)
        clearly = fits and left.level >= wanted + 1e-3 and requests.level >= 1 + 1e-3
        reservation, waits_s = self.reserved(tenant, tokens, claim)
        if reservation is None:
            assert not clearly
            assert waits_s > 0
            return
        assert fits
        requests.level -= 1
        left.level -= tokens
        self.running.append((tenant, reservation, tokens, claim.slots))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cost=st.integers(0, 1_200))
    def ends(self, data: st.DataObject, cost: int):
        tenant, reservation, estimate, _ = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        reservation.settle(cost)
        reservation.settle(99)
        reservation.release()
        left = self.tokens[tenant]
        left.level = min(left.burst, left.level + estimate - cost)

    @invariant()
    def each_tenant_holds_what_runs(self):
        for tenant in "abcd":
            account = self.quotas._accounts.get(tenant)
            assert (account.in_flight if account else 0) == self.held(tenant)
            if account and account.tokens:
                assert account.tokens.level() == pytest.approx(self.tokens[tenant].level, abs=1e-3)

    def reserved(self, tenant: str, tokens: int, claim: quota.Claim) -> tuple[Reservation | None, float]:
        """The admitted claim, or the seconds after which it may be."""
        try:
            return self.quotas.reserve(tenant, self.ALLOWANCE, tokens, claim), 0.0
        except QuotaExceeded as refused:
            return None, refused.retry_delay_s or 0.0

    def held(self, tenant: str) -> int:
        return sum(slots for name, _, _, slots in self.running if name == tenant)


@pytest.fixture(autouse=True)
def _few_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "_MOST_IDLE", 2)


TestQuotas = QuotaMachine.TestCase
TestQuotas.settings = SEEDED
