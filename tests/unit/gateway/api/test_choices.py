"""Several answers to one question: admitted together, and ended together."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from opentelemetry.trace import INVALID_SPAN, Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.effective import Budget
from services.gateway.admission.identity import Tenant
from services.gateway.admission.quota import QuotaExceeded
from services.gateway.api.choices import Choices, ChoicesGiver
from services.gateway.api.preparation import AdmittedRequest, CheckedRequest, Preparation
from services.gateway.errors import refuses_choices
from services.gateway.policies.work_shares import WorkShares
from services.gateway.settings.serving import ShedSettings
from services.runtime.deadline import Deadline
from services.runtime.errors import Faulty, InvalidInput, ServiceError
from tests.cancelling import Work, cancelled_at_every_await
from tests.clock import loop_clock
from tests.unit.gateway.admission.scene import request, tenant

pytestmark = pytest.mark.paused

LIMITED = tenant(concurrency=3, tokens_per_minute=6_000, requests_per_s=0.1, requests_burst=3)
NO_SUCH_FIELD = InvalidInput("n", "no such field of model m", 3)


class ScriptedAnswer:
    """Says its model's name after a second, and costs 7 tokens."""

    def __init__(self, admitted: AdmittedRequest, problem: ServiceError | None):
        self._admitted, self._problem = admitted, problem

    async def give(self, send: Any) -> None:
        try:
            await asyncio.sleep(1)
            if self._problem:
                raise self._problem
            await send(pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text="a"))]))
        finally:
            self._admitted.reservation.settle(7)


class ScriptedPreparation(Preparation):
    """Admits for real. `problems`: those of the answers that are asked for, in turn."""

    def __init__(self, *problems: ServiceError | None):
        self._admission = AdmissionControl(ShedSettings(), WorkShares(lambda: 0.0, 0.85))
        self._admission._quotas._clock = loop_clock
        self.problems, self.asked = list(problems), 0

    async def checked(self, request_: pb.GenerateRequest, tenant: Tenant, deadline: Deadline) -> CheckedRequest:
        return CheckedRequest(request(), tenant, Budget(1_000), deadline)

    async def answer(self, admitted: AdmittedRequest, span: Span, **_: Any) -> Any:
        self.asked += 1
        return ScriptedAnswer(admitted, self.problems.pop(0) if self.problems else None)

    def left(self) -> tuple[int, int, int]:
        """The slots taken, and the whole requests and tokens that the buckets hold."""
        account = self._admission._quotas._accounts[LIMITED.name]
        assert account.requests
        assert account.tokens
        return account.in_flight, math.floor(account.requests.level()), math.floor(account.tokens.level())


async def given(
    preparation: Preparation, count: int = 3, *, tried: bool = False, tenant: Tenant = LIMITED
) -> list[int | None]:
    """The indexes of the answers, as they come."""
    came: list[int | None] = []

    async def send(message: pb.GenerateResponse, choice: int | None = None, /) -> None:
        came.append(choice)

    async def each() -> list[pb.GenerateRequest]:
        return [pb.GenerateRequest() for _ in range(count)]

    choices = Choices(pb.GenerateRequest(), count, tried, refuses_choices, each)
    giver = ChoicesGiver(preparation, tenant, Deadline.never(loop_clock), lambda: None)
    await giver.give(choices, INVALID_SPAN, send)
    return came


async def test_each_answer_is_charged_and_counts_for_concurrency() -> None:
    preparation = ScriptedPreparation()
    few = tenant(concurrency=3, tokens_per_minute=60, requests_per_s=0.1, requests_burst=3)
    giving = asyncio.create_task(given(preparation, tenant=few))
    await asyncio.sleep(0.5)
    assert preparation.left()[:2] == (3, 0)
    assert {*await giving} == {0, 1, 2}
    assert preparation.left() == (0, 0, 60 - 3 * 7 + 1)  # a second has passed


async def test_all_are_refused_where_the_bucket_has_too_few_and_the_delay_is_enough_for_all() -> None:
    preparation = ScriptedPreparation()
    await given(preparation, 2)
    with pytest.raises(QuotaExceeded, match=r"0.1 requests a second, 3 needed together") as refused:
        await given(preparation, 3)
    assert preparation.asked == 2
    await asyncio.sleep(refused.value.retry_delay_s or 0)
    assert len(await given(preparation, 3)) == 3


async def test_a_model_that_gives_one_answer_counts_as_one_of_the_requests() -> None:
    preparation = ScriptedPreparation(NO_SUCH_FIELD)
    assert len(await given(preparation, 3, tried=True)) == 3
    assert preparation.left()[1] == 0  # of 3


async def test_the_delay_is_enough_where_a_model_is_asked_for_all_of_them_first() -> None:
    preparation = ScriptedPreparation(None, NO_SUCH_FIELD, NO_SUCH_FIELD)
    await given(preparation, 3, tried=True)  # by one request
    with pytest.raises(QuotaExceeded) as refused:
        await given(preparation, 3, tried=True)
    await asyncio.sleep(refused.value.retry_delay_s or 0)
    assert len(await given(preparation, 3, tried=True)) == 3


async def test_a_model_that_gives_all_of_them_is_asked_once() -> None:
    preparation = ScriptedPreparation()
    assert await given(preparation, tried=True) == [None]
    assert preparation.asked == 1


async def test_the_first_error_ends_all() -> None:
    preparation = ScriptedPreparation(None, Faulty("oh"))
    with pytest.raises(Faulty, match="oh"):
        await given(preparation)
    assert preparation.left()[0] == 0


@cancelled_at_every_await()
async def test_cancelled_answers_hold_no_concurrency_and_no_tokens() -> Work:
    preparation = ScriptedPreparation(NO_SUCH_FIELD)
    yield given(preparation, 2, tried=True)
    await asyncio.sleep(60)
    if preparation._admission._quotas._accounts:
        assert preparation.left() == (0, 3, 6_000)
