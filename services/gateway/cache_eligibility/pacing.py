"""A stored text at the pace of one that is written: what is said when."""

from __future__ import annotations

from collections.abc import Iterator

_EVERY_S = 0.05  # more often nobody sees a difference, and each message costs


def paced(text: str, per_s: float, within_s: float) -> Iterator[tuple[float, str]]:
    """Pieces of a text, each with when it is due, in seconds after the first: `per_s` characters a second, or as many
    more as it takes for the last one to be due `within_s`."""
    if per_s * within_s < len(text):
        per_s = len(text) / within_s if within_s > 0 else float("inf")
    size = int(min(max(1, per_s * _EVERY_S), max(1, len(text))))
    for at in range(0, len(text), size):
        yield at / per_s, text[at : at + size]
