"""Asks a model with the caller's Python functions as tools until it answers: the requests, the calls of functions and
the messages that follow. No I/O here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from hedgerow._chat_input import turns_of
from hedgerow._errors import DeadlineExceeded, invalid
from hedgerow._events import Answer
from hedgerow._options import Message, Messages
from hedgerow._shapes import Mismatch, build
from hedgerow._signature import Function, bare, kinds_of, required
from hedgerow._tools import Tool, ToolCall

_LONGEST_KEY = 128  # the gateway's limit, in characters


class ToolLoop:
    """The loop of requests and calls. `budget_ms` covers all of it, the functions included. `clock` returns monotonic
    seconds."""

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
        self._asked = 0  # requests
        self._functions, self._steps_left = Functions(functions), max_steps
        self._turns: list[Message] = turns_of(messages)
        self._budget_ms, self._clock, self._began = budget_ms, clock, clock()

    def next_request(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The next request. The `tool_choice` in `options` applies to the first request; after the last step no more
        calls are allowed. Each request gets an `idempotency_key` of its own. Raises `DeadlineExceeded`."""
        request: dict[str, Any] = {"messages": list(self._turns), "tools": self._functions.tools}
        later = "none" if self._steps_left == 0 else None
        request["tool_choice"] = later if self._asked else options.get("tool_choice")
        if self._asked and (key := options.get("idempotency_key")):
            own = f"{key}/{self._asked}"
            request["idempotency_key"] = own if len(own) <= _LONGEST_KEY else sha256(own.encode()).hexdigest()
        self._asked += 1
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
        """The call as a function. If its arguments do not match, that function returns an error text for the model."""
        try:
            return self._functions.prepared(call)
        except ValueError as error:
            problem = f"error: {error}"
            return lambda: problem

    def note(self, call: ToolCall, result: Any) -> None:
        """Add the result of a call."""
        self._turns.append(Message("tool", as_text(result), tool_call_id=call.id))


class Functions:
    """Functions that a model may call, by their names."""

    def __init__(self, functions: Iterable[Any]):
        self._by_name: dict[str, Function] = {}
        self.tools: list[Tool] = []
        for index, function in enumerate(functions):
            if not callable(function):
                raise invalid(f"tools[{index}]", "a function, which can be called", type(function).__name__)
            tool = Tool.from_function(function)
            if tool.name in self._by_name:
                raise invalid("tools", "functions of different names", f"two of the name {tool.name}")
            self._by_name[tool.name] = function
            self.tools.append(tool)

    def prepared(self, call: ToolCall) -> Callable[[], Any]:
        """A model's call as a function. Raises `ValueError`, whose text is for the model, for arguments that do not
        match the function's types."""
        function = self._by_name[call.name]
        given, kinds = call.parsed(), kinds_of(function)
        if not isinstance(given, dict):
            raise Mismatch(f"arguments: an object, got {given!r}")
        if unknown := given.keys() - kinds.keys():
            raise Mismatch(f"arguments: no parameter {min(unknown)}")
        if missing := [name for name in required(function) if name not in given]:
            raise Mismatch(f"arguments: the parameter {missing[0]}, got none")
        return partial(function, **{name: build(bare(kinds[name]), value, name) for name, value in given.items()})


def as_text(result: Any) -> str:
    """A function's result for a model: a text unchanged, other values as JSON."""
    if isinstance(result, str):
        return result
    if hasattr(result, "model_dump_json"):
        return str(result.model_dump_json())
    return json.dumps(result, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
