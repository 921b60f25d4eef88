"""Questions about the project's own pages, and where these answer them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hedgerow import CollectionHit

PAGES = Path(__file__).parents[2] / "docs"
_FILE = Path(__file__).with_suffix(".tsv")


@dataclass(frozen=True)
class Place:
    """A page, or a section of one."""

    page: str
    section: str

    def holds(self, hit: CollectionHit) -> bool:
        """Whether a snippet stands there."""
        return hit.source == self.page and (not self.section or self.section in hit.title.split(" › "))


@dataclass(frozen=True)
class Question:
    """A question, and the places of which any answers it."""

    text: str
    places: tuple[Place, ...]

    def rank(self, hits: Iterable[CollectionHit]) -> int | None:
        """The place of the first snippet that answers it, from 1; None where none does."""
        right = (number for number, hit in enumerate(hits, 1) if any(place.holds(hit) for place in self.places))
        return next(right, None)


@cache
def questions() -> list[Question]:
    """All of them, in the order of the file."""
    lines = (line for line in _FILE.read_text().splitlines() if not line.startswith("#"))
    return [_parsed(line) for line in lines]


def pages() -> dict[str, str]:
    """Text by source."""
    return {path.relative_to(PAGES).as_posix(): path.read_text() for path in sorted(PAGES.rglob("*.md"))}


def _parsed(line: str) -> Question:
    text, *places = line.split("\t")
    parted = (place.partition("#") for place in places)
    return Question(text, tuple(Place(page, section) for page, _, section in parted))
