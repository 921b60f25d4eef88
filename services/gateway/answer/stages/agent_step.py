"""One step of an agent: a model is asked for calls, and answers with calls or with text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer import model_call
from services.gateway.answer.draft import Draft
from services.gateway.answer.inputs import in_tools
from services.gateway.answer.ledger import Running
from services.gateway.answer.output import Output
from services.gateway.answer.unchanged_fields import FORM
from services.gateway.generation.shared import GenerationReading
from services.gateway.labels import Act, Degraded
from services.gateway.tools.toolbox import Equipment
from services.runtime.deadline import Deadline
from services.runtime.errors import TooLate


class AgentStep:
    """One question to a model. `calls` are the calls of mesh tools in its answer, `said` is the text before them."""

    def __init__(
        self, draft: Draft, equipment: Equipment, stage: Running, ends: Deadline, steps_left: int, *, first: bool
    ):
        self._draft, self._equipment, self._stage, self._first = draft, equipment, stage, first
        self._ends = Deadline.after(ends.remaining() / steps_left, draft.ledger.clock)
        self._written = Output(draft.ledger.clock)  # of this step alone
        self._finish = llm_pb2.Finish()
        self._answers = draft.fast is None and not draft.question.request.HasField("response_format")
        self.calls: list[chat_pb2.ToolCall] = []

    @property
    def said(self) -> str:
        return "".join(self._written.text) if self._answers else ""

    async def run(self) -> None:
        """Ask the model. Raises `TooLate` where neither a call nor text has come in the time of the step."""
        draft = self._draft
        reading = self._ask()
        try:
            while not self._finish.reason:
                if not (items := await self._next(reading)):
                    raise TooLate("it ended without saying why")
                await self._take(items, reading)
                if self._wants_none:
                    return
        finally:
            model_call.settle(draft, reading)
        await self._end(reading)

    @property
    def _wants_none(self) -> bool:
        """Whether the fast model writes text in place of a call: the better model answers then."""
        return not self._answers and bool(self._written.text)

    def _ask(self) -> GenerationReading:
        draft, request = self._draft, self._draft.question.request
        asked = model_call.question(draft, "messages", "tools", "tool_choice", *FORM)
        del asked.tools[:]
        asked.tools.extend(in_tools([*request.tools, *self._equipment.told()], draft.inputs.hidden))
        asked.ClearField("response_format")
        asked.ClearField("tool_choice")
        if self._first and request.HasField("tool_choice"):
            asked.tool_choice.CopyFrom(request.tool_choice)
        choice = draft.fast or draft.chosen
        models = (choice.model, *choice.alternatives) if self._answers else (choice.model,)
        # Text is the answer itself, and has the remaining time of the answer.
        lasts_s = draft.ledger.remaining() if self._answers else self._ends.remaining()
        work = model_call.job(draft, asked, models, replace(self._stage, budget_s=lasts_s), first_text=self._answers)
        return model_call.read(draft, b"", work, replace(self._stage, budget_s=lasts_s))

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
                await model_call.write_message(self._draft, _without_calls(item))
        if self._answers:
            self._draft.ledger.final.model = reading.report.model

    async def _end(self, reading: GenerationReading) -> None:
        """End the step: with text, with calls of mesh tools, or with a call of the caller's own tools, which ends the
        answer."""
        draft, ledger = self._draft, self._draft.ledger
        own = {tool.name for tool in draft.question.request.tools}
        calls = self._written.calls
        theirs = [call for call in calls if call.name in own]
        if theirs:
            await self._hand_over(theirs, len(calls) - len(theirs))
        elif calls:
            await draft.voice.release()
            self.calls = _numbered(calls, self._draft.inputs.for_model())
            return
        elif not self._answers:
            return
        else:
            await draft.voice.finish(self._finish.reason)
        report = reading.report
        ledger.final.model = report.model
        ledger.final.usage.CopyFrom(self._finish.usage)
        ledger.final.usage.completion_tokens += report.carried_tokens
        if report.problems:
            ledger.degrade(Degraded.LLM_REPLACED)
        if report.resumed:
            ledger.degrade(Degraded.LLM_RESUMED)

    async def _hand_over(self, theirs: Sequence[chat_pb2.ToolCall], others: int) -> None:
        draft, ledger = self._draft, self._draft.ledger
        await draft.voice.release()
        deltas = [
            chat_pb2.ToolCallDelta(index=index, id=call.id, name=call.name, arguments=call.arguments)
            for index, call in enumerate(theirs)
        ]
        ledger.written.add_calls(deltas, 0)
        draft.writer.write(*(pb.Event(tool_call=delta) for delta in deltas))
        ledger.finish(chat_pb2.FINISH_REASON_TOOL_CALLS)
        if others:
            ledger.decide(Act.TOOL_DROPPED, "agent", f"{others} calls beside {theirs[0].name}")


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
