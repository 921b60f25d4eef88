"""In which order the replicas of a model are tried.

    priority   the nearest region first, the others by distance
    build      within it, a draw by weight: a canary of weight 5 beside 95 gets every twentieth call
    prefix     within that, the replica that has read the prompt's prefix; for a short prompt, the least busy one

Replicas with equally few calls in flight are drawn by speed: one whose first text takes 100 times as long gets every
hundredth of such calls, so that it is noticed when it is fast again.

The choice by prefix is bounded: a replica with more than 1.25 × the mean of calls in flight is full, whatever it has
read (consistent hashing with bounded loads, Mirrokni et al., https://arxiv.org/abs/1608.01350). Without it one popular
prefix would have one replica crawl while others idle. Beginnings that are new to all are bounded the same way by what
each has read: chance alone would soon give one replica three quarters of eight.

Which replica has a prefix is estimated from the prompts that were sent to it. An engine that reuses the keys and values
of a shared prompt prefix (vLLM's automatic prefix caching) saves the time of reading it again, but only on the replica
that has read it. Prompts are cut into blocks, each block's hash also covers all blocks before it, and a replica that
was sent a block lately is taken to have it. The method is that of SGLang's router and of llm-d's prefix scorer, in
their approximate form (https://github.com/sgl-project/sglang, https://llm-d.ai/docs/architecture).

The prefixes of a tenant's prompts must not be visible to other tenants. So engines keep prompts of different salts
apart, and so do the blocks' hashes here.

For a prefix that no replica has, rendezvous hashing (Thaler and Ravishankar, 1998) has every gateway choose the same
replica, without communication. It is weighted by speed (the logarithmic method of Schindelhauer and Schomaker, SPAA
2005): a replica whose first text takes twice as long gets half as many.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeVar

from cachetools import LRUCache

from hedgerow.llm.v1 import llm_pb2

_BOUND = 1.25
_HIGHEST = math.log(1 << 64)  # claim to a prefix: `rendezvous` has 8 bytes
BLOCK_BYTES = 256  # about 64 tokens of English; prompts shorter than one have no prefix to share
_MOST_BLOCKS = 64  # of one prompt that are looked at: 16 KiB
_MEMORY_BLOCKS = 16_384  # of one replica: 4 MiB of prompts, about what a small engine's cache holds
Blocks = Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Locality:
    """The locality of a replica. `weight` is its share of the calls, relative to the others'."""

    priority: int = 0
    build: str = ""
    weight: float = 1.0


def blocks(parts: Iterable[str], salt: str) -> Blocks:
    """The digests of a prompt's full blocks, each over all of the prompt up to its end. `parts` in the prompt's order;
    where one ends counts. Prompts with different salts have no block in common."""
    digest, left, found = hashlib.blake2b(salt.encode(), digest_size=8), b"", list[bytes]()
    for part in parts:
        left += part[: _MOST_BLOCKS * BLOCK_BYTES].encode() + b"\0"  # as much of it as can be in blocks
        while len(left) >= BLOCK_BYTES:
            if len(found) == _MOST_BLOCKS:
                return found
            digest.update(left[:BLOCK_BYTES])
            left = left[BLOCK_BYTES:]
            found.append(digest.digest())
    return found


def blocks_of(request: llm_pb2.GenerateRequest) -> Blocks:
    """The blocks of a request's prompt: templates put tools first."""
    parts = chain((tool.parameters for tool in request.tools), (message.content for message in request.messages))
    return blocks(parts, request.cache_salt)


class Prefixes:
    """The prompts that one replica was sent lately."""

    def __init__(self, most_blocks: int = _MEMORY_BLOCKS):
        self._known: LRUCache[bytes, None] = LRUCache(most_blocks)

    def __len__(self) -> int:
        """The length in blocks."""
        return len(self._known)

    def sent(self, prompt: Blocks) -> None:
        """The replica reads this prompt."""
        for block in reversed(prompt):  # the beginning is the last to be forgotten
            self._known[block] = None

    def matched(self, prompt: Blocks) -> int:
        """How many blocks, from the first on, the replica has read before."""
        for number, block in enumerate(prompt):
            if block not in self._known:
                return number
        return len(prompt)


class Candidate(Protocol):
    """A replica, as balancing sees it. `in_flight` counts this gateway's calls alone."""

    address: str
    locality: Locality
    in_flight: int
    first_s: float  # average time to first text; 0 until it is known
    prefixes: Prefixes


C = TypeVar("C", bound=Candidate)


def order(candidates: Collection[C], prompt: Blocks, rng: random.Random) -> Iterator[C]:
    """All `candidates`, the best one first."""
    if len(candidates) < 2:
        yield from candidates
        return
    for priority in sorted({candidate.locality.priority for candidate in candidates}):
        tier = [candidate for candidate in candidates if candidate.locality.priority == priority]
        for build in _builds(tier, rng):
            members = [candidate for candidate in tier if candidate.locality.build == build]
            yield from _by_prefix(members, prompt) if prompt else _least_request(members, rng)


def taken(candidate: Candidate, prompt: Blocks) -> None:
    """A call goes to `candidate`."""
    candidate.in_flight += 1
    candidate.prefixes.sent(prompt)


def _builds(tier: Sequence[Candidate], rng: random.Random) -> Sequence[str]:
    """Drawn by weight, without putting back (Efraimidis and Spirakis, 2006)."""
    weights: dict[str, float] = {}
    for candidate in tier:
        weights[candidate.locality.build] = weights.get(candidate.locality.build, 0.0) + candidate.locality.weight
    if len(weights) == 1:
        return list(weights)
    return sorted(weights, key=lambda build: rng.random() ** (1 / weights[build]), reverse=True)


def _least_request(members: Sequence[C], rng: random.Random) -> Sequence[C]:
    slowness = _slowness(members)

    def rank(each: C) -> tuple[float, float]:
        return (each.in_flight + 1) / each.locality.weight, -(rng.random() ** slowness(each))

    return sorted(members, key=rank)


def _slowness(members: Sequence[C]) -> Callable[[C], float]:
    """The time of one of `members` to its first text, where the average of all is 1."""
    known = [each.first_s for each in members if each.first_s]
    mean_s = sum(known) / len(known) if known else 1.0
    return lambda each: (each.first_s or mean_s) / mean_s


def _by_prefix(members: Sequence[C], prompt: Blocks) -> Sequence[C]:
    bound = math.ceil(_BOUND * (sum(each.in_flight for each in members) + 1) / len(members))
    known = _BOUND * (sum(len(each.prefixes) for each in members) + len(prompt)) / len(members)
    slowness = _slowness(members)

    def rank(each: C) -> tuple[Any, ...]:
        slow, claim = slowness(each), int.from_bytes(rendezvous(prompt[0], each.address), "big") + 1
        has_most = len(each.prefixes) * min(slow, 1) >= known  # a fast one may read more than others
        return each.in_flight >= bound, -each.prefixes.matched(prompt), has_most, slow * (_HIGHEST - math.log(claim))

    return sorted(members, key=rank)


def rendezvous(block: bytes, name: str) -> bytes:
    """The claim of `name` to a block that no replica has; the highest wins."""
    return hashlib.blake2b(block + name.encode(), digest_size=8).digest()
