"""Texts in JSON objects that grow piece by piece: to add each piece to its text would copy all before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Join = Callable[[Iterable[str]], str]


class GrowingTexts:
    """Objects have their texts once `settle` was called."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, str], tuple[dict[str, Any], list[str], Join]] = {}

    def add(self, holder: dict[str, Any], field: str, piece: str, join: Join = "".join) -> None:
        """More of the text in a field of an object; `join` makes one text of all pieces. Raises TypeError where either
        is no text."""
        key = id(holder), field
        if key not in self._pieces:
            self._pieces[key] = holder, [_text(holder.get(field, ""))], join
        self._pieces[key][1].append(_text(piece))

    def settle(self) -> None:
        """Write what has come into the objects."""
        for (_, field), (holder, pieces, join) in self._pieces.items():
            holder[field] = join(pieces)
        self._pieces.clear()


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"a text, got {type(given).__name__}")
    return given
