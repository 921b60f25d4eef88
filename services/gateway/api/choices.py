"""Several answers to one question (`n`): from a model that gives them to one request, or else from a request for each.

The requests for each answer are admitted together: all of them, or none. A bucket that holds fewer than they need
refuses them before any has begun, and the retry delay is the time until it holds enough for all. They run at the same
time within the same budget, and end together: the first error ends them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.api.idempotency import SendChoice
from services.gateway.api.preparation import AdmittedRequest, CheckedRequest, Preparation
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Choices:
    """A caller's order. `whole`: the request for all `count` answers; `tried`: whether a model is asked for all of them
    first. `refused` is called with an error of that, and says whether each answer may be asked for separately. `each`
    makes a request for each answer; it raises `InvalidInput` or `FieldDenied`."""

    whole: pb.GenerateRequest
    count: int
    tried: bool
    refused: Callable[[InvalidInput], bool]
    each: Callable[[], Awaitable[Sequence[pb.GenerateRequest]]]


@dataclass(frozen=True, slots=True)
class ChoicesGiver:
    """Gives the answers to the `tenant`, which waits until `deadline`. `admitted` is called when they are admitted."""

    preparation: Preparation
    tenant: Tenant
    deadline: Deadline
    admitted: Callable[[], None]

    async def give(self, choices: Choices, span: Span, send: SendChoice) -> None:
        """Send all: those of one model without an index, or each with its own."""
        paid = 0
        if choices.tried:
            try:
                whole = await self.preparation.admit(await self._checked(choices.whole), span)
                paid = 1
                self.admitted()
                await (await self.preparation.answer(whole, span)).give(send)
            except InvalidInput as refused:
                if not choices.refused(refused):
                    raise
            else:
                return
        await self._give_each(await choices.each(), paid, span, send)

    async def _give_each(self, asked: Sequence[pb.GenerateRequest], paid: int, span: Span, send: SendChoice) -> None:
        checked = [await self._checked(request) for request in asked]
        async with self.preparation.admitted_together(checked, span, paid) as requests:
            self.admitted()
            try:
                async with asyncio.TaskGroup() as group:
                    for index, request in enumerate(requests):
                        group.create_task(self._give_one(request, index, span, send))
            except BaseExceptionGroup as errors:
                raise _first(errors) from None

    async def _give_one(self, request: AdmittedRequest, index: int, span: Span, send: SendChoice) -> None:
        answer = await self.preparation.answer(request, span)
        await answer.give(partial(_send_of, send, index))

    async def _checked(self, request: pb.GenerateRequest) -> CheckedRequest:
        return await self.preparation.checked(request, self.tenant, self.deadline)


async def _send_of(send: SendChoice, index: int, message: pb.GenerateResponse) -> None:
    await send(message, index)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
