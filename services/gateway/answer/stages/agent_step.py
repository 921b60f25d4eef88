"""One step of an agent: a model is asked for calls, and answers with calls or with text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer import model_call
from services.gateway.answer.context import RequestContext
from services.gateway.answer.inputs import mask_tools
from services.gateway.answer.ledger import Running
from services.gateway.answer.original_body import FORM
from services.gateway.answer.output import Output
from services.gateway.answer.results import Done, Route
from services.gateway.generation.shared import GenerationReading
from services.gateway.labels import Act, Degraded
from services.gateway.tools.toolbox import RequestTools
from services.runtime.deadline import Deadline
from services.runtime.errors import TooLate


class AgentStep:
    """A call of a model. `calls` are the mesh tools that it calls, `said` is the text before them."""

    def __init__(
        self,
        context: RequestContext,
        request_tools: RequestTools,
        stage: Running,
        ends: Deadline,
        steps_left: int,
        *,
        first: bool,
    ):
        self._context, self._request_tools, self._stage, self._first = context, request_tools, stage, first
        self._ends = Deadline.after(ends.remaining() / steps_left, context.ledger.clock)
        self._written = Output(context.ledger.clock)  # of this step alone
        self._finish = llm_pb2.Finish()
        self._route = context.prior[Route]
        self._answers = self._route.fast is None and not context.question.request.HasField("response_format")
        self.calls: list[chat_pb2.ToolCall] = []
        self.model = ""  # the writer of the last message

    @property
    def said(self) -> str:
        return "".join(self._written.text) if self._answers else ""

    @property
    def cut(self) -> Done | None:
        """The end of the answer where the guard has ended it."""
        return Done(chat_pb2.FINISH_REASON_CONTENT_FILTER, self.model) if self._context.text_writer.cut else None

    async def run(self) -> Done | None:
        """Ask the model. Returns `Done` where its reply is the answer. Raises `TooLate` where neither a call nor text
        has come in the time of the step."""
        context = self._context
        reading = await self._ask()
        try:
            while not self._finish.reason:
                if not (items := await self._next(reading)):
                    raise TooLate("it ended without a finish reason")
                await self._take(items, reading)
                if self._wants_none:
                    return None
        finally:
            model_call.settle(context, reading)
        return await self._end(reading)

    @property
    def _wants_none(self) -> bool:
        """Whether the fast model writes text in place of a call: the better model answers then."""
        return not self._answers and bool(self._written.text)

    async def _ask(self) -> GenerationReading:
        context, request = self._context, self._context.question.request
        asked = await model_call.question(context, "messages", "tools", "tool_choice", *FORM)
        del asked.tools[:]
        asked.tools.extend(
            mask_tools([*request.tools, *self._request_tools.descriptions()], context.inputs.masked_texts)
        )
        asked.ClearField("response_format")
        asked.ClearField("tool_choice")
        if self._first and request.HasField("tool_choice"):
            asked.tool_choice.CopyFrom(request.tool_choice)
        choice = self._route.fast or self._route.choice
        models = (choice.model, *choice.alternatives) if self._answers else (choice.model,)
        # Text is the answer itself, and has the remaining time of the answer.
        lasts_s = context.ledger.remaining() if self._answers else self._ends.remaining()
        stage = replace(self._stage, started=context.ledger.elapsed(), budget_s=lasts_s)
        return model_call.read(context, b"", model_call.job(context, asked, models, stage, first_text=self._answers))

    async def _next(self, reading: GenerationReading) -> Sequence[llm_pb2.GenerateResponse]:
        if self._answers and self._written.text:
            return await reading.reader.take()
        try:
            async with asyncio.timeout(self._ends.remaining()):
                return await reading.reader.take()
        except TimeoutError:
            raise TooLate(f"no call within {self._stage.name}'s time") from None

    async def _take(self, items: Iterable[llm_pb2.GenerateResponse], reading: GenerationReading) -> None:
        for item in items:
            if item.text:
                self._written.add_text(item.text, item.tokens)
            if item.tool_calls:
                self._written.add_calls(item.tool_calls, 0 if item.text else item.tokens)
            if item.HasField("finish"):
                self._finish.CopyFrom(item.finish)
            if self._answers:
                await model_call.write_message(self._context, _without_calls(item))
        self.model = reading.report.model

    async def _end(self, reading: GenerationReading) -> Done | None:
        """End the step: with text, with calls of mesh tools, or with a call of the caller's own tools, which ends the
        answer."""
        context, ledger = self._context, self._context.ledger
        own = {tool.name for tool in context.question.request.tools}
        calls = self._written.calls
        theirs = [call for call in calls if call.name in own]
        if theirs:
            reason = await self._hand_over(theirs, len(calls) - len(theirs))
        elif calls:
            await context.text_writer.pause()
            self.calls = _numbered(calls, self._context.inputs.for_model())
            return self.cut
        elif not self._answers:
            return None
        else:
            reason = await context.text_writer.finish(self._finish.reason)
        report = reading.report
        if report.problems:
            ledger.degrade(Degraded.LLM_REPLACED)
        if report.resumed:
            ledger.degrade(Degraded.LLM_RESUMED)
        return Done(reason, report.model, model_call.usage(self._finish, report), reading.generation)

    async def _hand_over(self, theirs: Sequence[chat_pb2.ToolCall], others: int) -> chat_pb2.FinishReason:
        context, ledger = self._context, self._context.ledger
        await context.text_writer.release()
        if context.text_writer.cut:
            return chat_pb2.FINISH_REASON_CONTENT_FILTER
        deltas = [
            chat_pb2.ToolCallDelta(index=index, id=call.id, name=call.name, arguments=call.arguments)
            for index, call in enumerate(theirs)
        ]
        ledger.written.add_calls(deltas, 0)
        context.writer.write(*(pb.Event(tool_call=delta) for delta in deltas))
        if others:
            ledger.decide(Act.TOOL_DROPPED, "agent", f"{others} calls beside {theirs[0].name}")
        return chat_pb2.FINISH_REASON_TOOL_CALLS


def _without_calls(item: llm_pb2.GenerateResponse) -> llm_pb2.GenerateResponse:
    return llm_pb2.GenerateResponse(
        text=item.text, tokens=item.tokens, reasoning=item.reasoning, logprobs=item.logprobs
    )


def _numbered(calls: Sequence[chat_pb2.ToolCall], before: Iterable[chat_pb2.Message]) -> list[chat_pb2.ToolCall]:
    """The calls, each with an id unlike any other in the conversation."""
    taken = {call.id for message in before for call in message.tool_calls}
    numbered = []
    for call in calls:
        number, name = len(taken), call.id
        while not name or name in taken:
            name, number = f"call_{number}", number + 1
        taken.add(name)
        numbered.append(chat_pb2.ToolCall(id=name, name=call.name, arguments=call.arguments))
    return numbered
