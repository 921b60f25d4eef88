"""A provider's own chunks of a chat completion, on their way to a client of the same API."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.gateway.http import sse
from services.gateway.http.sse import GrowingAnswer, GrowingTexts
from services.runtime.strict_json import compact

_SAME = ("id", "object", "created", "model")
_GROW = ("delta", "logprobs")  # of a choice; its other fields are those of the last chunk that has them
_SAID_ONCE = frozenset({"channel", "format", "id", "index", "name", "role", "type"})


@dataclass(frozen=True, slots=True)
class _Growing:
    """The parts of an answer that grow: its texts, and the objects of its arrays, each found by its index."""

    texts: GrowingTexts = field(default_factory=GrowingTexts)
    _arrays: dict[int, tuple[list[Any], dict[Any, dict[str, Any]]]] = field(default_factory=dict)

    def objects(self, array: list[Any]) -> dict[Any, dict[str, Any]]:
        """The objects of an array by their index: without it, each piece of a call would need a search of all calls
        before it."""
        if id(array) not in self._arrays:
            self._arrays[id(array)] = array, {each["index"]: each for each in array if _index(each) is not None}
        return self._arrays[id(array)][1]


class _CallIndices:
    """An index of its own for each call of an answer: Gemini's API has one for all of them, or none. A call with a name
    and another id is another call."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], tuple[int, object]] = {}  # index and id, by choice and the provider's index
        self._begun: Counter[int] = Counter()  # calls of each choice

    def put_into(self, said: Mapping[str, Any]) -> bool:
        """Whether any call of a chunk has another index now."""
        changed = False
        for choice in said.get("choices") or ():
            delta = choice.get("delta")
            calls = delta.get("tool_calls") if isinstance(delta, dict) else None
            for place, call in enumerate(calls if isinstance(calls, list) else ()):
                if not isinstance(call, dict):
                    continue
                index = self._of(_choice_index(choice), place, call)
                if call.get("index") != index:
                    call["index"], changed = index, True
        return changed

    def _of(self, choice: int, place: int, call: Mapping[str, Any]) -> int:
        key, given = (choice, index if isinstance(index := call.get("index"), int) else place), call.get("id")
        named = any(isinstance(each, dict) and each.get("name") for each in call.values())
        if key not in self._calls or (named and given not in (None, "", self._calls[key][1])):
            self._calls[key] = self._begun[choice], given
            self._begun[choice] += 1
        return self._calls[key][0]


class RelayedChat:
    """Relays an answer, or several choices of one. Chunks are sent unchanged but for the indices of calls; those that
    end a choice wait for the report. `same`: fields with the same value in all chunks."""

    def __init__(self, *, usage: bool, index: int = 0, own: Mapping[str, Any] | None = None):
        """`usage`: whether the client wants the chunk with the usage, which the gateway always asks for. `own`: the
        words of the chunks here in the place of the provider's, as the choice `index` of several answers."""
        self.same: dict[str, Any] = {}
        self._usage, self._index, self._own = usage, index, own or {}
        self._last: list[tuple[bytes, dict[str, Any]]] = []
        self._begun, self._waiting = set[int](), set[int]()  # choices
        self._completion, self._calls = GrowingCompletion(), _CallIndices()

    @property
    def ended(self) -> bool:
        """Whether the provider has said how the answer ended, and all that has begun of it."""
        return bool(self._last) and self._begun <= self._waiting

    def chunks(self, events: Iterable[bytes]) -> bytes:
        """The chunks to send now."""
        data = list[bytes]()
        for event in events:
            said = json.loads(event.decode())  # of bytes, it would guess the encoding first
            changed = self._calls.put_into(said)
            if self._own or changed:
                said = self._renamed(said) if self._own else said
                event = compact(said)
            if not self.same.get("id"):  # Azure's first chunk is about the prompt alone, and leaves these empty
                self.same = {name: said[name] for name in _SAME if name in said}
            if self._waits(said):
                self._last.append((event, said))
            elif self._is_wanted(said):
                data.append(b"data: " + event + b"\n\n")
        return b"".join(data)

    def end(self, report: Mapping[str, Any]) -> bytes:
        """The end of the stream, with the report in its last chunk."""
        *before, (_, last) = [each for each in self._last if self._is_wanted(each[1])]
        return self._sent(before) + sse.event({**last, "hedgerow": report}) + sse.DONE

    @property
    def begun(self) -> int:
        """How many choices of a stream there are."""
        return len(self._begun)

    def unfinished(self) -> list[int]:
        """The choices of which the provider has not said how they ended, or the only one."""
        return sorted(self._begun - self._waiting) or [self._index]

    def held(self, report: Mapping[str, Any] | None = None) -> bytes:
        """The chunks that wait for the report, where other chunks come before it; else with it."""
        held = [(event, said) for event, said in self._last if said.get("choices")]
        if report and held:
            *held, (_, last) = held
            return self._sent(held) + sse.event({**last, "hedgerow": report})
        return self._sent(held)

    def _sent(self, held: Iterable[tuple[bytes, Mapping[str, Any]]]) -> bytes:
        return b"".join(b"data: " + event + b"\n\n" for event, _ in held)

    def _renamed(self, said: dict[str, Any]) -> dict[str, Any]:
        for choice in said.get("choices") or ():
            choice["index"] = self._index
        return {**said, **self._own}

    def _waits(self, said: Mapping[str, Any]) -> bool:
        """Whether a chunk ends a choice, or comes after that; the other choices go on."""
        choices = {_choice_index(choice) for choice in said.get("choices") or ()}
        self._begun |= choices
        waits = _ends(said) or bool(choices & self._waiting or (self._last and not choices))
        self._waiting |= choices if waits else set()
        return waits

    def _is_wanted(self, said: Mapping[str, Any]) -> bool:
        """Whether to send a chunk: all but the one with the usage, if the client has not requested that."""
        return bool(self._usage or said.get("choices") or not said.get("usage"))

    def gather(self, events: Iterable[bytes]) -> None:
        """Take chunks of an answer that is written in one piece."""
        for said in map(json.loads, events):
            self._calls.put_into(said)
            self._completion.add(self._renamed(said) if self._own else said)

    def whole(self) -> dict[str, Any]:
        """The completion of all chunks; empty where they do not end, or make no completion."""
        return self._completion.whole() if self._completion.ended else {}


class GrowingCompletion(GrowingAnswer):
    """A chat completion, of its chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False  # whether a chunk says how a choice ended
        self._whole: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._growing = _Growing()

    def _made(self) -> dict[str, Any]:
        if not self._whole:
            return {}
        self._growing.texts.settle()
        choices = [_finished(self._choices[index]) for index in sorted(self._choices)]
        return {**self._whole, "object": "chat.completion", "choices": choices}

    def _add(self, event: Mapping[str, Any]) -> None:
        self._whole |= _newer(self._whole, {name: given for name, given in event.items() if name != "choices"})
        for choice in event.get("choices") or ():
            known = self._choices.setdefault(choice.get("index", 0), {})
            known |= _newer(known, {name: given for name, given in choice.items() if name not in _GROW})
            _grow(known, {name: choice[name] for name in _GROW if name in choice}, self._growing)
        self.ended = self.ended or _ends(event)


def _newer(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are new or replace known ones, which null and blanks do not: Azure's chunks about its filter have
    a blank id."""
    return {name: given for name, given in more.items() if given or name not in known}


def _choice_index(choice: Mapping[str, Any]) -> int:
    """The index of a choice. A provider may leave it out, or send one that is no number."""
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _finished(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice of an answer in one piece. Calls of tools have no index there."""
    message = {"content": None, **choice.pop("delta", {})}
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
    return {"logprobs": None, **choice, "message": message}


def _grow(known: dict[str, Any], more: Mapping[str, Any], growing: _Growing, *, audio: bool = False) -> None:
    """Texts go on, objects grow, arrays grow by the index that their objects have, or else at their end. `audio`:
    whether `known` is an answer's sound."""
    for name, given in more.items():
        old = known.get(name)
        if old is None or given is None:
            known[name] = old if given is None else _copied(given)
        elif isinstance(old, dict) and isinstance(given, dict):
            _grow(old, given, growing, audio=name == "audio")
        elif isinstance(old, list) and isinstance(given, list):
            _grow_list(old, given, growing)
        elif isinstance(old, list) and isinstance(given, str):
            _grow_parts(old, given, growing)
        elif old and isinstance(old, str) and isinstance(given, list):
            growing.texts.settle()
            known[name] = [{"type": "text", "text": known[name]}, *_copied(given)]
        elif isinstance(old, str) and isinstance(given, str) and name not in _SAID_ONCE:
            growing.texts.add(known, name, given, _joined if audio and name == "data" else "".join)
        else:
            known[name] = given or old


def _grow_list(known: list[Any], more: Iterable[Any], growing: _Growing) -> None:
    objects = growing.objects(known)
    for given in more:
        index = _index(given)
        if index is not None and index in objects and _same_type(objects[index], given):
            _grow(objects[index], given, growing)
            continue
        known.append(_copied(given))
        if index is not None:
            objects[index] = known[-1]


def _grow_parts(known: list[Any], text: str, growing: _Growing) -> None:
    """Mistral sends thoughts and references of an answer as lists of parts, and its text alone."""
    if not (known and isinstance(known[-1], dict) and known[-1].get("type") == "text"):
        known.append({"type": "text", "text": ""})
    growing.texts.add(known[-1], "text", text, "".join)


def _index(given: Any) -> Any:
    return given.get("index") if isinstance(given, dict) else None


def _same_type(known: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    """OpenRouter's thoughts of two types may have one index."""
    return more.get("type") in (None, "", known.get("type")) or not known.get("type")


def _joined(sound: Iterable[str]) -> str:
    """Pieces of sound, each in base64 of its own."""
    return base64.b64encode(b"".join(map(base64.b64decode, sound))).decode()


def _copied(given: Any) -> Any:
    return json.loads(compact(given))


def _ends(said: Mapping[str, Any]) -> bool:
    """Whether a chunk says how the answer ended."""
    return any(choice.get("finish_reason") for choice in said.get("choices") or ())
