"""In which order the replicas of a model are tried.

    priority   the nearest region first, the others by distance
    build      within it, a draw by weight: a canary of weight 5 beside 95 gets every twentieth call
    policy     within that: the replica with the prompt's prefix, with the fewest calls in flight, or the next in turn

`prefix` is bounded: a replica with more than 1.25 × the mean of calls in flight is full, whatever it has read
(consistent hashing with bounded loads, Mirrokni et al., https://arxiv.org/abs/1608.01350). Without it one popular
prefix would have one replica crawl while others idle. Beginnings that are new to all are bounded the same way by what
each has read: chance alone would soon give one replica three quarters of eight.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from services.gateway.upstream.prefix import Blocks, Prefixes, rendezvous

Policy = Literal["prefix", "least_request", "round_robin"]
_BOUND = 1.25


@dataclass(frozen=True, slots=True)
class Locality:
    """Where a replica stands among its like. `weight` is its share of the calls, relative to the others'."""

    priority: int = 0
    build: str = ""
    weight: float = 1.0


class Candidate(Protocol):
    """A replica, as balancing sees it. `in_flight` counts this gateway's calls alone."""

    address: str
    locality: Locality
    in_flight: int
    turn: float  # of round robin: the lowest is next
    prefixes: Prefixes


C = TypeVar("C", bound=Candidate)


def order(candidates: Collection[C], policy: Policy, prompt: Blocks, rng: random.Random) -> Iterator[C]:
    """All `candidates`, the best one first."""
    if len(candidates) < 2:
        yield from candidates
        return
    for priority in sorted({candidate.locality.priority for candidate in candidates}):
        tier = [candidate for candidate in candidates if candidate.locality.priority == priority]
        for build in _builds(tier, rng):
            members = [candidate for candidate in tier if candidate.locality.build == build]
            yield from _POLICIES[policy](members, prompt, rng)


def taken(candidate: Candidate, prompt: Blocks) -> None:
    """A call goes to `candidate`."""
    candidate.in_flight += 1
    candidate.turn += 1 / candidate.locality.weight
    candidate.prefixes.sent(prompt)


def joined(candidate: Candidate, others: Collection[Candidate]) -> None:
    """`candidate` is new: it takes turns with the others from now on, and does not catch up."""
    candidate.turn = max((other.turn for other in others), default=0.0)


def _builds(tier: Sequence[Candidate], rng: random.Random) -> Sequence[str]:
    """Drawn by weight, without putting back (Efraimidis and Spirakis, 2006)."""
    weights: dict[str, float] = {}
    for candidate in tier:
        weights[candidate.locality.build] = weights.get(candidate.locality.build, 0.0) + candidate.locality.weight
    if len(weights) == 1:
        return list(weights)
    return sorted(weights, key=lambda build: rng.random() ** (1 / weights[build]), reverse=True)


def _least_request(members: Sequence[C], _: Blocks, rng: random.Random) -> Sequence[C]:
    return sorted(members, key=lambda each: ((each.in_flight + 1) / each.locality.weight, rng.random()))


def _round_robin(members: Sequence[C], _: Blocks, rng: random.Random) -> Sequence[C]:
    return sorted(members, key=lambda each: (each.turn, rng.random()))


def _prefix(members: Sequence[C], prompt: Blocks, rng: random.Random) -> Sequence[C]:
    if not prompt:
        return _least_request(members, prompt, rng)
    bound = math.ceil(_BOUND * (sum(each.in_flight for each in members) + 1) / len(members))
    known = _BOUND * (sum(len(each.prefixes) for each in members) + len(prompt)) / len(members)

    def rank(each: C) -> tuple[Any, ...]:
        claim = int.from_bytes(rendezvous(prompt[0], each.address), "big")
        return each.in_flight >= bound, -each.prefixes.matched(prompt), len(each.prefixes) >= known, -claim

    return sorted(members, key=rank)


_POLICIES: Mapping[Policy, Callable[[Sequence[Any], Blocks, random.Random], Sequence[Any]]] = {
    "prefix": _prefix,
    "least_request": _least_request,
    "round_robin": _round_robin,
}
