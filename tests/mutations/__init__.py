"""Faults that were mended, each as the few characters that bring it back, and the test that must notice.

Data, one file for each group: `file`, `old` (stands in it once), `new`, and `test` (a pytest node). `make mutants` puts
each fault back into a copy of the tree and runs its test there, which must fail; a contract test holds the data to the
code. As mutation testing (DeMillo, Lipton, Sayward, 1978), with mutants written by hand: those we have met.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Mutation:
    """`fault`, for people: what the world looks like with `new` in place of `old`."""

    fault: str
    file: str
    old: str
    new: str
    test: str


def mutations() -> Iterator[Mutation]:
    """All of them, file by file."""
    for path in sorted(_FOLDER.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutation"]:
            yield Mutation(**entry)
