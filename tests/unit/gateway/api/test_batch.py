from __future__ import annotations

import asyncio

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.effective import Budget
from services.gateway.admission.question import Question
from services.gateway.api.batch import Batch, batch_error
from services.gateway.api.preparation import CheckedRequest
from services.gateway.policies.batch_admission import ItemTurn
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, InvalidInput, ServiceError, Unavailable
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import ACME

pytestmark = pytest.mark.paused
_TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def to_error(error: Exception) -> pb.BatchError:
    assert isinstance(error, ServiceError), error
    return pb.BatchError(reason=error.reason, message=error.message)


class Scene:
    """Answers that take a second each once they have begun; `placed` says whether their model is asked at once."""

    def __init__(self, placed: bool = False):
        self.placed = placed
        self.begun: list[int] = []
        self.running = self.most = 0
        self.batch = Batch(self.check, self.begin, to_error)

    async def check(self, request: pb.GenerateRequest) -> CheckedRequest:
        if request.budget_ms < 0:
            raise InvalidInput("budget_ms", "at least 1", request.budget_ms)
        deadline = Deadline.after(request.budget_ms / 1000, loop_clock)
        return CheckedRequest(Question(request), ACME, Budget(request.budget_ms), deadline)

    async def begin(self, checked: CheckedRequest, turn: ItemTurn) -> pb.Final:
        request = checked.question.request
        self.begun.append(request.budget_ms)
        if request.attempt:
            raise Unavailable("broken")
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.placed:
                turn.end()
            await asyncio.sleep(1)
            return pb.Final(text=".")
        finally:
            self.running -= 1

    async def results(self, *requests: pb.GenerateRequest) -> list[pb.GenerateBatchResponse]:
        return [result async for result in self.batch.results(requests)]


def item(budget_ms: int = 60_000, **fields: object) -> pb.GenerateRequest:
    return pb.GenerateRequest(budget_ms=budget_ms, **fields)


@pytest.mark.parametrize(("placed", "most"), [(False, 4), (True, 20)])
async def test_a_few_items_of_a_batch_run_at_once_and_more_when_these_have_slots(placed: bool, most: int):
    scene = Scene(placed)
    results = await scene.results(*[item()] * 20)
    assert sorted(result.index for result in results) == list(range(20))
    assert all(result.final.text == "." for result in results)
    assert scene.most == most


async def test_the_item_with_the_least_time_goes_first():
    scene = Scene()
    await scene.results(*(item(budget) for budget in (9_000, 3_000, 7_000, 5_000, 1_500, 8_000)))
    assert scene.begun == [1_500, 3_000, 5_000, 7_000, 8_000, 9_000]


async def test_a_budget_counts_from_the_start_of_the_batch():

    results = await Scene().results(*[item(1_500)] * 12)
    answered = [result for result in results if result.HasField("final")]
    assert len(answered) == 8  # two rounds of four have begun by then
    assert {result.error.reason for result in results if result.HasField("error")} == {"SHED"}


async def test_the_failure_of_one_item_does_not_end_the_others():
    results = await Scene().results(item(-1), item(), item(attempt=1), item())
    reasons = {result.index: result.error.reason for result in results}
    assert reasons == {0: "INVALID_INPUT", 1: "", 2: "UNAVAILABLE", 3: ""}


def test_an_error_has_the_values_behind_the_message_and_no_delay_where_waiting_does_not_help() -> None:
    item_error = batch_error(InvalidInput("budget_ms", "at least 1", 0), _TRACE_ID)
    assert (item_error.code, item_error.reason, item_error.trace_id) == ("INVALID_ARGUMENT", "INVALID_INPUT", _TRACE_ID)
    assert dict(item_error.metadata) == {"field": "budget_ms", "limit": "at least 1", "value": "0"}
    assert not item_error.HasField("retry_delay")


def test_an_error_has_the_delay_of_a_refusal() -> None:
    assert batch_error(Exhausted("busy", retry_delay_s=0.25), _TRACE_ID).retry_delay.ToMilliseconds() == 250


def test_an_error_says_nothing_of_what_a_bug_says() -> None:
    item_error = batch_error(KeyError("a secret"), _TRACE_ID)
    assert (item_error.code, item_error.reason) == ("INTERNAL", "INTERNAL")
    assert "secret" not in str(item_error)
