"""A bench's result, for people: one table for all figures with the same names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table

_Row = tuple[str, Mapping[str, object]]


def tables(result: Mapping[str, Any]) -> Group:
    """Nested mappings are called by their keys, and what they end in are their figures."""
    grouped: dict[tuple[str, ...], list[_Row]] = {}
    for name, cells in _rows("", result):
        grouped.setdefault(tuple(cells), []).append((name, cells))
    return Group(*(part for names, rows in grouped.items() for part in (_table(names, rows), "")))


def _rows(name: str, node: Mapping[str, Any]) -> Iterator[_Row]:
    own = {key: value for key, value in node.items() if not _nested(value)}
    if own:
        yield name, own
    for key, value in node.items():
        if _nested(value):
            below = value if isinstance(value, Mapping) else {str(number): each for number, each in enumerate(value, 1)}
            yield from _rows(f"{name} {key}".strip(), below)


def _nested(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _table(figures: Sequence[str], rows: Sequence[_Row]) -> Table:
    """A row for each mapping, or for each figure if there are as many of these: terminals are higher than wide."""
    table = Table("", box=None)
    names = [name for name, _ in rows]
    texts = [["" if value is None else str(value) for value in cells.values()] for _, cells in rows]
    across, down = figures, zip(names, texts, strict=True)
    if len(figures) >= len(rows):
        across, down = names, zip(figures, map(list, zip(*texts, strict=True)), strict=True)
    for title in across:
        table.add_column(title, justify="right")
    for title, cells in down:
        table.add_row(title, *cells)
    return table
