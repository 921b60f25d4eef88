"""A provider's own events of a message, on their way to a client of Anthropic's API."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from services.gateway.http import sse
from services.gateway.http.sse import GrowingAnswer, GrowingTexts

_GROWS = {  # by the kind of a delta: the field of its block that it goes on, and its own
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "partial_json"),
}


class RelayedMessages:
    """Relays an answer. Events are sent unchanged; the event with its end waits for the report."""

    def __init__(self) -> None:
        self.begun, self.blocks = False, 0  # `blocks`: above every index of the provider's blocks
        self._open: dict[int, None] = {}  # in their order
        self._last: dict[str, Any] = {}
        self._message = GrowingMessage()

    @property
    def ended(self) -> bool:
        """Whether the provider has said how the answer ended."""
        return bool(self._last)

    def chunks(self, events: Iterable[bytes]) -> bytes:
        """The events to send now."""
        data = list[bytes]()
        for event in events:
            self.begun, said = True, json.loads(event)
            self._follow(said)
            if said["type"] == "message_delta":
                data += [sse.named(self._last)] if self._last else []
                self._last = said
            else:
                data.append(sse.as_written(said["type"], event))
        return b"".join(data)

    def stops(self) -> bytes:
        """The end of their blocks, where the answer goes on or ends without them."""
        data = b"".join(sse.named({"type": "content_block_stop", "index": index}) for index in self._open)
        self._open.clear()
        return data

    def end(self, report: Mapping[str, Any]) -> bytes:
        """The end of the stream, with the report."""
        return sse.named({**self._last, "hedgerow": report}) + sse.named({"type": "message_stop"})

    def gather(self, events: Iterable[bytes]) -> None:
        """Take events of an answer that is written in one piece."""
        for event in map(json.loads, events):
            self._message.add(event)

    def whole(self) -> dict[str, Any]:
        """The message that all events together say; empty where they do not end, or make none."""
        return self._message.whole()

    def _follow(self, said: Mapping[str, Any]) -> None:
        """Note which blocks are open."""
        if isinstance(index := said.get("index"), int):
            self.blocks = max(self.blocks, index + 1)
            if said["type"] == "content_block_start":
                self._open[index] = None
            elif said["type"] == "content_block_stop":
                self._open.pop(index, None)


class GrowingMessage(GrowingAnswer):
    """A message, of its events; none before they say how it ends."""

    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._growing, self._ended = GrowingTexts(), False

    def _made(self) -> dict[str, Any]:
        if not self._ended:
            return {}
        self._growing.settle()
        return {**self._message, "content": [_finished(self._blocks[index]) for index in sorted(self._blocks)]}

    def _add(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "message_start":
                self._message = dict(event["message"])
            case "content_block_start":
                self._blocks[event["index"]] = copy.deepcopy(event["content_block"])
            case "content_block_delta":
                _grow(self._blocks[event["index"]], event["delta"], self._growing)
            case "message_delta":
                known = self._message
                usage = {**(known.get("usage") or {}), **_there(event.get("usage") or {})}
                rest = {name: given for name, given in event.items() if name not in ("type", "delta", "usage")}
                delta = {name: said for name, said in event["delta"].items() if said is not None or name not in known}
                self._message = {**known, **delta, **rest, "usage": usage}
                self._ended = True


def _grow(block: dict[str, Any], delta: Mapping[str, Any], growing: GrowingTexts) -> None:
    kind = delta["type"]
    if kind == "citations_delta":
        block["citations"] = block.get("citations") or []
        block["citations"].append(delta["citation"])
    elif kind in _GROWS:
        whole, more = _GROWS[kind]
        block[whole] = block.get(whole) or ""
        growing.add(block, whole, delta[more])
    else:  # of a kind that was not there yet
        block |= {name: given for name, given in delta.items() if name != "type"}


def _finished(block: dict[str, Any]) -> dict[str, Any]:
    if text := block.pop("partial_json", ""):
        block["input"] = input_of(text)
    return block


def input_of(arguments: str) -> dict[str, Any]:
    """The arguments of a call as an object. A text that is no JSON object is passed on as `arguments`."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        given = None
    return given if isinstance(given, dict) else {"arguments": arguments}


def _there(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given for name, given in usage.items() if given is not None}
