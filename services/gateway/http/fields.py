"""Reading a request's JSON by hand: lenient about what is not known, strict about what is. Every refusal names the
field, the limit and the value."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import pybase64

from services.gateway.admission.intake import DEFAULT_LIMITS, Limits
from services.gateway.http import json_limits
from services.runtime import strict_json
from services.runtime.errors import InvalidInput

_BLANKS = "\t\n\f\r "
_INT32 = 2**31 - 1
_INT64 = 2**63 - 1
_ANY = sys.maxsize  # elements: as many as a body may have
_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
# What is read here is read again, here and in other services, where the stack may be deeper, and by Python as well,
# which takes two frames for each level. So few levels are no trouble anywhere.
_FLAT, _KEPT_FRAMES = 200, 650
_LONG = 1_048_576  # bytes, whose brackets take longer to count than these frames to make
T = TypeVar("T")


class Fields:
    """An object, whose place in the body is `path`. A field that is null is not there. It remembers which fields were
    read, and whether it was left as a whole for a provider that knows it."""

    __slots__ = ("_given", "_left", "_parts", "_path", "_read")

    def __init__(self, given: Mapping[str, Any], path: str = ""):
        self._given, self._path, self._left = given, path, False
        self._read: set[str] = set()
        self._parts: dict[str, Fields] = {}  # the objects in it that were read, by their places

    def __contains__(self, name: str) -> bool:
        return self._given.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def at(self, name: str) -> str:
        """A field's place."""
        return f"{self._path}.{name}" if self._path else name

    def unread(self) -> dict[str, Any]:
        """Unread fields by their path: of this object, and of objects in it that were read. An object that was left, or
        of which no field was read, is listed as a whole."""
        if self._left:
            return {self._path: self._given}
        rest = {self.at(name): given for name, given in self._given.items() if name not in self._read}
        for place, part in self._parts.items():
            rest |= part.unread() if part._read else {place: part._given}
        return {place: given for place, given in rest.items() if given is not None}

    def leave(self, *names: str) -> None:
        """Have these fields count as not read; without names, this object as a whole."""
        self._left = self._left or not names
        for name in names:
            self._read.discard(name)
            self._parts.pop(self.at(name), None)

    def left(self) -> Iterator[str]:
        """The places of objects that were left as a whole."""
        if self._left:
            yield self._path
        else:
            for part in self._parts.values():
                yield from part.left()

    def miswritten(self) -> Iterator[tuple[str, str]]:
        """The places of unread fields with capital letters, each with the name of the field that it is without them, if
        that was read or is there: servers in Go take both for the same (https://pkg.go.dev/encoding/json#Unmarshal)."""
        for name in self._given:
            usual = name if name in self._read else name.casefold()
            if usual != name and (usual in self._read or usual in self._given):
                yield self.at(name), usual
        for part in self._parts.values():
            yield from part.miswritten()

    def raw(self, name: str) -> Any:
        """The value unchanged, as read completely."""
        self._read.add(name)
        return self._given.get(name)

    def seen(self, name: str) -> Any:
        """The value unchanged, but not counted as read: a provider gets it, too."""
        return self._given.get(name)

    def text(self, name: str) -> str | None:
        return self._of(name, str)

    def needed(self, name: str) -> str:
        """A text that must be there."""
        text = self.text(name)
        if text is None:
            raise self.wrong(name, "a string")
        return text

    def one_of(self, name: str, known: Mapping[str, T]) -> T | None:
        """The value that a word names."""
        word = self.text(name)
        if word is None:
            return None
        if word not in known:
            raise self.wrong(name, f"one of {', '.join(known)}")
        return known[word]

    def flag(self, name: str) -> bool | None:
        return self._of(name, bool)

    def whole(self, name: str, most: int = _INT32) -> int | None:
        given = self.raw(name)
        if given is None:
            return None
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise self.wrong(name, "a whole number")
        if not -most - 1 <= given <= most:
            raise self.wrong(name, f"{-most - 1} to {most}")
        return given

    def long(self, name: str) -> int | None:
        """A whole number of 64 bits."""
        return self.whole(name, _INT64)

    def number(self, name: str) -> float | None:
        given = self.raw(name)
        if given is None:
            return None
        if not isinstance(given, int | float) or isinstance(given, bool):
            raise self.wrong(name, "a number")
        try:
            return float(given)
        except OverflowError:
            raise self.wrong(name, "a number that a float holds") from None

    def object(self, name: str) -> Fields | None:
        given = self._of(name, dict)
        return None if given is None else self._part(given, self.at(name))

    def objects(self, name: str, most: int = _ANY) -> list[Fields]:
        """The objects of an array, of at most `most` elements; empty if it is absent."""
        return [self._object(name, index, each) for index, each in enumerate(self.array(name, most))]

    def array(self, name: str, most: int = _ANY) -> list[Any]:
        found = self._of(name, list) or []
        if len(found) > most:
            raise InvalidInput(self.at(name), f"at most {most}", len(found))
        return found

    def texts(self, name: str, most: int = _ANY) -> list[str]:
        """The texts of an array of at most `most` elements, or a single text."""
        given = self.raw(name)
        found = [given] if isinstance(given, str) else self.array(name, most)
        for index, each in enumerate(found):
            if not isinstance(each, str):
                raise InvalidInput(f"{self.at(name)}[{index}]", "a string", _kind(each))
        return found

    def wholes(self, name: str) -> list[int]:
        """The whole numbers of an array; empty if it is absent."""
        given = Fields({f"{name}[{index}]": each for index, each in enumerate(self.array(name))}, self._path)
        return [given.needed_whole(place) for place in given]

    def needed_whole(self, name: str) -> int:
        """A whole number that must be there."""
        whole = self.whole(name)
        if whole is None:
            raise self.wrong(name, "a whole number")
        return whole

    def base64(self, name: str) -> bytes:
        """Bytes that must be there."""
        return from_base64(self.at(name), self.needed(name))

    def refuse(self, *names: str) -> None:
        """Raise for the first of these that is there: known, and not supported."""
        for name in names:
            if given := self.raw(name):
                raise InvalidInput(self.at(name), "not supported", _kind(given))

    def wrong(self, name: str, limit: str) -> InvalidInput:
        """The error of a field that is not within its limit."""
        return InvalidInput(self.at(name), limit, _kind(self._given.get(name)))

    def _object(self, name: str, index: int, given: Any) -> Fields:
        path = f"{self.at(name)}[{index}]"
        if not isinstance(given, dict):
            raise InvalidInput(path, "an object", _kind(given))
        return self._part(given, path)

    def _part(self, given: dict[str, Any], path: str) -> Fields:
        return self._parts.setdefault(path, Fields(given, path))

    def _of(self, name: str, kind: type[T]) -> T | None:
        self._read.add(name)
        given = self._given.get(name)
        if given is None or isinstance(given, kind):
            return given
        raise self.wrong(name, _NAMES[kind])


def parse(body: bytes, limits: Limits = DEFAULT_LIMITS, model: str = "") -> Fields:
    """The object that a body is; a `model` stands for the one that it names. Raises `InvalidInput`, for too many values
    before any is made."""
    json_limits.check(body, limits)
    try:
        nested = len(body) > _LONG or body.count(b"[") + body.count(b"{") > _FLAT
        given = _with_less_stack(_KEPT_FRAMES, body.decode()) if nested else strict_json.loads(body.decode())
    except ValueError as error:
        problem = "UTF-8" if isinstance(error, UnicodeDecodeError) else f"JSON ({error})"
        raise InvalidInput("body", problem, f"{len(body)} bytes") from None
    if not isinstance(given, dict):
        raise InvalidInput("body", "an object", _kind(given))
    return Fields({**given, "model": model} if model else given)


def _with_less_stack(frames: int, text: str) -> Any:
    """The JSON of `text`, read where `frames` fewer than here are left for its levels."""
    return _with_less_stack(frames - 1, text) if frames else strict_json.loads(text)


def from_base64(path: str, text: str) -> bytes:
    """The bytes that `text` stands for. Line breaks and blanks do not count, as in browsers, because encoders wrap
    lines: https://infra.spec.whatwg.org/#forgiving-base64-decode."""
    try:
        wrapped = any(blank in text for blank in _BLANKS)
        data = text.encode("ascii").translate(None, _BLANKS.encode()) if wrapped else text
        return pybase64.b64decode(data, validate=True)
    except ValueError:
        raise InvalidInput(path, "base64", f"{len(text)} characters") from None


def _kind(given: Any) -> str:
    """A value for an error: unchanged, unless it may be long."""
    return _NAMES[type(given)] if isinstance(given, dict | list) or given is None else repr(given)
