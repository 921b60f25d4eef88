"""Makes the pairs in this folder of the templates beside it: `python -m tests.integration.adversarial.make`.

Different pairs: each template is filled with each exchange; of every kind half of the pairs are those that the cache's
embedder takes for nearest, the other half is drawn. Same pairs are drawn. Nothing comes from a data set.
"""

from __future__ import annotations

import json
import random
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from bench.cache import parts
from services.cache.config import CacheSettings

FOLDER = Path(__file__).parent
DIFFERENT, SAME = FOLDER / "different.jsonl", FOLDER / "same.jsonl"
_SEED = 7
_DIFFERENT_OF_A_KIND, _SAME_OF_A_KIND = 28, 36
_OF_AN_EXCHANGE = 8  # among the nearest of a kind, so that one blind spot does not fill it
Nearness = Callable[[str, str], float]


class Made(NamedTuple):
    """A pair, and what it was made with."""

    kind: str
    a: str
    b: str
    by: str


def different(groups: Iterable[dict[str, Any]]) -> Iterator[Made]:
    """Every template of a group with every exchange, and with every two of its words."""
    for group in groups:
        exchanges = [exchange.split("|") for exchange in group.get("exchanges", ())]
        exchanges += combinations(group.get("words", ()), 2)
        for template in group["templates"]:
            for one, other in exchanges:
                yield _made(group["kind"], (template, template), (one, other), (other, one))


def same(groups: Iterable[dict[str, Any]]) -> Iterator[Made]:
    """Every two wordings of a group with every topic."""
    for group in groups:
        for wording in group["wordings"]:
            for topic in group["topics"]:
                words = topic.split("|")
                yield _made(group["kind"], wording.split("="), words, words)


def nearest_and_drawn(made: Iterable[Made], near: Nearness, count: int, draw: random.Random) -> list[Made]:
    """Half of the count those that are nearest, with few of one exchange; the other half of what is left."""
    order = sorted(made, key=lambda pair: near(pair.a, pair.b), reverse=True)
    chosen: list[Made] = []
    used: Counter[str] = Counter()
    for pair in order:
        if len(chosen) < count // 2 and used[pair.by] < _OF_AN_EXCHANGE:
            used[pair.by] += 1
            chosen.append(pair)
    left = [pair for pair in order if pair not in chosen]
    return chosen + draw.sample(left, min(count - len(chosen), len(left)))


def nearness() -> Nearness:
    """The cosine of two texts by the cache's own embedder."""
    engine = parts.load(CacheSettings())

    def near(a: str, b: str) -> float:
        one, other = engine.embed_batch([a, b])
        return 0.0 if one is None or other is None else float(one @ other)

    return near


def main() -> None:
    """Write both files."""
    draw, near = random.Random(_SEED), nearness()
    made = _by_kind(different(_groups("different.toml")))
    chosen = [nearest_and_drawn(pairs, near, _DIFFERENT_OF_A_KIND, draw) for pairs in made.values()]
    _write(DIFFERENT, chosen, duplicate=0)
    made = _by_kind(same(_groups("same.toml")))
    _write(SAME, [draw.sample(pairs, min(_SAME_OF_A_KIND, len(pairs))) for pairs in made.values()], duplicate=1)


def _made(kind: str, templates: Iterable[str], one: Iterable[str], other: Iterable[str]) -> Made:
    one, other = list(one), list(other)
    a, b = (_filled(template, words) for template, words in zip(templates, (one, other), strict=True))
    return Made(kind, a, b, "|".join(sorted(one)))


def _filled(template: str, words: Iterable[str]) -> str:
    for place, word in enumerate(words):
        template = template.replace(f"{{{place}}}", word)
    return template[0].upper() + template[1:] if template.startswith(tuple(words)) else template


def _groups(file: str) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = tomllib.loads((FOLDER / file).read_text())["group"]
    return groups


def _by_kind(made: Iterable[Made]) -> dict[str, list[Made]]:
    kinds: dict[str, dict[tuple[str, str], Made]] = {}
    for pair in made:
        kinds.setdefault(pair.kind, {})[pair.a, pair.b] = pair
    return {kind: list(pairs.values()) for kind, pairs in kinds.items()}


def _write(file: Path, kinds: Iterable[Iterable[Made]], duplicate: int) -> None:
    rows = ({"a": pair.a, "b": pair.b, "duplicate": duplicate, "kind": pair.kind} for pairs in kinds for pair in pairs)
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


if __name__ == "__main__":
    main()
