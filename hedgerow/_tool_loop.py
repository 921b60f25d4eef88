"""Asking a model with functions of the caller's, until it answers: what is asked and said next. No I/O here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from hedgerow._errors import DeadlineExceeded, invalid
from hedgerow._events import Answer
from hedgerow._functions import Functions, as_text
from hedgerow._given import turns_of
from hedgerow._options import Message, Messages
from hedgerow._tools import ToolCall


class ToolLoop:
    """`budget_ms` is for all of it, the functions included. `clock` gives seconds, monotonic."""

    def __init__(
        self,
        messages: Messages,
        functions: Sequence[Any],
        max_steps: int,
        budget_ms: float | None,
        clock: Callable[[], float] = time.monotonic,
    ):
        if max_steps < 1:
            raise invalid("max_steps", "at least 1", max_steps)
        if not functions:
            raise invalid("tools", "at least one function", "none")
        self._first = True
        self._functions, self._steps_left = Functions(functions), max_steps
        self._turns: list[Message] = turns_of(messages)
        self._budget_ms, self._clock, self._began = budget_ms, clock, clock()

    def next_request(self, tool_choice: str | None) -> dict[str, Any]:
        """The next request. `tool_choice` is the caller's, for the first request; after the last step no more calls are
        allowed. Raises `DeadlineExceeded`."""
        request: dict[str, Any] = {"messages": list(self._turns), "tools": self._functions.tools}
        request["tool_choice"] = tool_choice if self._first else "none" if self._steps_left == 0 else None
        self._first = False
        if self._budget_ms is not None:
            left = self._budget_ms - (self._clock() - self._began) * 1000
            if left < 1:
                message = f"the tools took all of the {self._budget_ms:.0f} ms"
                raise DeadlineExceeded(message, reason="BUDGET_TIMEOUT")
            request["budget_ms"] = round(left)
        return request

    def calls(self, answer: Answer) -> Sequence[ToolCall]:
        """The calls that the answer asks for; empty for a final answer."""
        if self._steps_left == 0 or not answer.tool_calls:
            return ()
        self._steps_left -= 1
        self._turns.append(Message("assistant", answer.text, answer.tool_calls))
        return answer.tool_calls

    def prepared(self, call: ToolCall) -> Callable[[], Any]:
        """The call, ready to be made. Where its arguments do not match, it gives the model a text that says so."""
        try:
            return self._functions.prepared(call)
        except ValueError as error:
            problem = f"error: {error}"
            return lambda: problem

    def note(self, call: ToolCall, result: Any) -> None:
        """The result of a call."""
        self._turns.append(Message("tool", as_text(result), tool_call_id=call.id))
