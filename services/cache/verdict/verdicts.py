"""What speaks against giving the answer to a near question, and what a score is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from services.cache.engines import Engine
from services.cache.verdict import gates

Unseen = Callable[[str, str], str]  # how two texts differ in what their vectors do not show


@dataclass(frozen=True, slots=True)
class Judged:
    """A near question. `refused`: why it is no hit whatever its score, for people; empty otherwise. `doubts`: what
    refuses it unless a tenant's own verdicts say what that costs, in the words of `gates.DOUBTS`."""

    score: float = 0.0
    refused: str = ""
    doubts: tuple[str, ...] = ()

    def why(self, score: float, least: float) -> str:
        """Why it was not given, for people. `score`: what its doubts left; `least`: what was needed."""
        return self.refused or "".join(self.doubts[:1]) or f"a score of {score:.3f}, below {least:.3f}"


def judge(asked: str, stored: str, tenant: str, similarity: float, unseen: Unseen) -> Judged:
    """A tenant's pair whose cosine is `similarity`."""
    refused = gates.difference(asked, stored, tenant) or unseen(asked, stored)
    doubts = () if refused else tuple(gates.doubts(asked, stored, tenant, similarity))
    return Judged(similarity, refused, doubts)


def made_by(threshold: float, engine: Engine) -> str:
    """What makes a pair's score, and what decides while nothing is verified, as a digest: what was verified of one
    score says nothing about another."""
    return sha256(f"{engine.name}\ncosine\n{threshold!r}".encode()).hexdigest()[:16]
