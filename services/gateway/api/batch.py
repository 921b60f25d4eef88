"""Batches: items run as room appears, and each item ends with its answer or with its own error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass

from google.rpc import code_pb2, error_details_pb2

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.api.preparation import CheckedRequest
from services.gateway.policies.batch_admission import BatchAdmission, ItemTurn
from services.gateway.policies.slot import Shed
from services.runtime.rpc.boundary import to_status

_RETRY_AFTER_S = 1.0
Give = Callable[[CheckedRequest, ItemTurn], Awaitable[pb.Final]]


def batch_error(error: Exception, trace_id: str) -> pb.BatchError:
    """An error of a batch item, with the fields of a call's status. `trace_id`: of the call."""
    status = to_status(error)
    item_error = pb.BatchError(code=code_pb2.Code.Name(status.code), message=status.message, trace_id=trace_id)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for detail in status.details:
        _ = detail.Unpack(info) or detail.Unpack(retry)
    item_error.reason = info.reason
    item_error.metadata.update(info.metadata)
    if retry.HasField("retry_delay"):
        item_error.retry_delay.CopyFrom(retry.retry_delay)
    return item_error


@dataclass(frozen=True, slots=True)
class _BatchItem:
    index: int
    checked: CheckedRequest


class Batch:
    """`check` validates a request, `give` admits it and makes its answer, and `to_error` translates an exception of
    either into the error that callers receive."""

    def __init__(
        self,
        check: Callable[[pb.GenerateRequest], Awaitable[CheckedRequest]],
        give: Give,
        to_error: Callable[[Exception], pb.BatchError],
    ):
        self._check, self._give, self._to_error = check, give, to_error
        self._pace = BatchAdmission()

    async def results(self, requests: Iterable[pb.GenerateRequest]) -> AsyncGenerator[pb.GenerateBatchResponse, None]:
        """Each as it is done. One item's failure does not end the others."""
        items: list[_BatchItem] = []
        for index, request in enumerate(requests):
            try:
                items.append(_BatchItem(index, await self._check(request)))
            except Exception as error:
                yield self._failed(index, error)
        items.sort(key=lambda item: item.checked.deadline.at)
        tasks = [asyncio.create_task(self._result(item)) for item in items]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _result(self, item: _BatchItem) -> pb.GenerateBatchResponse:
        try:
            return pb.GenerateBatchResponse(index=item.index, final=await self._final(item))
        except Exception as error:
            return self._failed(item.index, error)

    async def _final(self, item: _BatchItem) -> pb.Final:
        try:
            turn = await self._pace.turn(item.checked.deadline)
        except TimeoutError:
            why = "batch: the budget was over before its turn came"
            raise Shed(why, retry_delay_s=_RETRY_AFTER_S, why="expired") from None
        try:
            return await self._give(item.checked, turn)
        finally:
            turn.end()

    def _failed(self, index: int, error: Exception) -> pb.GenerateBatchResponse:
        return pb.GenerateBatchResponse(index=index, error=self._to_error(error))
