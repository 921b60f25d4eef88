"""A bench's result, for people: one table for each run of rows with the same columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from rich.console import Group
from rich.table import Table

_Row = tuple[str, Mapping[str, object]]


def tables(result: Mapping[str, Any]) -> Group:
    """Nested mappings become rows that are called by their keys, and what they end in becomes columns."""
    grouped = groupby(_rows("", result), key=lambda row: tuple(row[1]))
    return Group(*(_table(columns, rows) for columns, rows in grouped))


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


def _table(columns: tuple[str, ...], rows: Iterator[_Row]) -> Table:
    table = Table("")
    for column in columns:
        table.add_column(column, justify="right")
    for name, cells in rows:
        table.add_row(name, *("" if value is None else str(value) for value in cells.values()))
    return table
