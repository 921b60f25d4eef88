"""A provider's own events of a response, on their way to a client of the same API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from services.gateway.http import sse
from services.gateway.http.sse import GrowingTexts
from services.runtime.strict_json import Write, compact

_BEGINS = ("response.created", "response.in_progress", "response.queued")
_ENDS = ("response.completed", "response.incomplete")
_PARTS = {  # by the kind of a part: the events of it, the list of its item that has it, and the name of its index there
    "output_text": ("response.output_text.", "content", "content_index"),
    "refusal": ("response.refusal.", "content", "content_index"),
    "reasoning_text": ("response.reasoning_text.", "content", "content_index"),
    "summary_text": ("response.reasoning_summary_text.", "summary", "summary_index"),
}
_WHOLE = {  # by the kind of an item that is written piece by piece: the events of it, and its field
    "function_call": ("response.function_call_arguments.", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input.", "input"),
}
_OF_END = ("status", "output", "error", "incomplete_details", "completed_at", "usage")
# What an event raises that is not as it should be: it leaves all the same, and is not ended where the gateway has to.
_ODD = (AttributeError, IndexError, KeyError, TypeError, ValueError)
NamedEvent = tuple[str, dict[str, Any]]  # the type of an event, and its other fields


class RelayedResponse:
    """Relays an answer. Events are sent unchanged; the last one waits for the report. `own`: fields of the response
    that come from the gateway, not the provider. `sequence`: the next sequence number."""

    def __init__(self, own: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.sequence, self._own = 0, own
        self._response: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}
        self._open = set[int]()  # indices in the output
        self._last: dict[str, Any] = {}
        self._growing = GrowingTexts()

    @property
    def begun(self) -> bool:
        return self.sequence > 0

    @property
    def ended(self) -> bool:
        """Whether the provider has said how the answer ended."""
        return bool(self._last)

    @property
    def same(self) -> dict[str, Any]:
        """The fields of the response that its end does not change; none before it has begun."""
        return {name: given for name, given in self._response.items() if name not in _OF_END}

    def chunks(self, events: Iterable[bytes]) -> bytes:
        """The events to send now."""
        data = list[bytes]()
        for event in events:
            fields = json.loads(event)
            self.sequence = max(self.sequence, int(fields.get("sequence_number") or 0)) + 1
            changed = bool(self._own) and fields["type"] in (*_BEGINS, *_ENDS)
            if changed:
                fields["response"] = {**fields["response"], **self._own}
            if fields["type"] in _ENDS:
                self._last = fields
            else:
                data.append(sse.as_written(fields["type"], compact(fields) if changed else event))
                with suppress(*_ODD):
                    self._follow(fields)
        return b"".join(data)

    def end(self, response: Mapping[str, Any], write: Write) -> bytes:
        """The end of the stream, with the whole response and its report."""
        return sse.as_written(self._last["type"], write({**self._last, "response": response}))

    def whole(self) -> dict[str, Any]:
        """The response in one piece; nothing where it has not ended."""
        return dict(self._last["response"]) if self._last else {}

    def close(self, status: str) -> Iterator[NamedEvent]:
        """The last events of what the provider has left open."""
        self._growing.settle()
        for index in sorted(self._open):
            item = self._items[index]
            item["status"] = status
            at = {"item_id": item.get("id"), "output_index": index}
            if known := _WHOLE.get(str(item.get("type"))):
                yield f"{known[0]}done", {**at, known[1]: item.get(known[1], "")}
            for name, index_name in (("summary", "summary_index"), ("content", "content_index")):
                for number, part in enumerate(_objects(item.get(name))):
                    yield from _closed(part, {**at, index_name: number})
            yield "response.output_item.done", {"output_index": index, "item": item}
        self._open.clear()

    def items(self) -> list[dict[str, Any]]:
        """The output, as far as it came."""
        self._growing.settle()
        return [self._items[index] for index in sorted(self._items)]

    def _follow(self, fields: Mapping[str, Any]) -> None:
        kind = fields["type"]
        if kind in _BEGINS:
            self._response = dict(fields["response"])
        elif kind == "response.output_item.added":
            self._items[int(fields["output_index"])] = _copied(fields["item"])
            self._open.add(int(fields["output_index"]))
        elif kind == "response.output_item.done":
            self._items[int(fields["output_index"])] = _copied(fields["item"])
            self._open.discard(int(fields["output_index"]))
        elif kind in ("response.content_part.added", "response.reasoning_summary_part.added"):
            name, index_name = ("content", "content_index") if "content" in kind else ("summary", "summary_index")
            parts = self._items[fields["output_index"]].setdefault(name, [])
            parts[fields[index_name] :] = [_copied(fields["part"])]
        elif kind.endswith(".delta"):
            self._grow(kind.removesuffix("delta"), fields)

    def _grow(self, events: str, fields: Mapping[str, Any]) -> None:
        item = self._items[fields["output_index"]]
        for prefix, field in _WHOLE.values():
            if prefix == events:
                self._growing.add(item, field, fields["delta"])
        for prefix, name, index_name in _PARTS.values():
            if prefix == events:
                part = item[name][fields[index_name]]
                field = "refusal" if "refusal" in part else "text"
                self._growing.add(part, field, fields["delta"])


def _closed(part: Mapping[str, Any], at: dict[str, Any]) -> Iterator[NamedEvent]:
    known = _PARTS.get(str(part.get("type")))
    if known is None:
        return
    field = "refusal" if "refusal" in part else "text"
    more = {"logprobs": part.get("logprobs") or []} if field == "text" and known[0] == "response.output_text." else {}
    yield f"{known[0]}done", {**at, field: part.get(field, ""), **more}
    done = "response.reasoning_summary_part.done" if known[1] == "summary" else "response.content_part.done"
    yield done, {**at, "part": part}


def _objects(given: Any) -> list[dict[str, Any]]:
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _copied(given: Any) -> dict[str, Any]:
    return dict(json.loads(compact(given)))
