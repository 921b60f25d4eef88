"""How a simulated provider behaves, as data: chosen latencies, no model.

`ARTICLES` is the provider that the project starts from: totals of p50 200 ms, p95 2.3 s, and 2.3% that take longer than
the client's 8 s, so that its p99 is the client's timeout. Its answers have 4 tokens, the first after T and the others
5 ms apart, so the total is T + 15 ms. The three points do not fix the shape. Two values are chosen: the share of the
tail, w = 6%, and the spread of the body, sigma = 0.7 (the 95th percentile of ordinary answers is three times their
median). The rest follows:

- The tail alone reaches so far, so w (x / 2,285)^alpha = 5% and w (x / 7,985)^alpha = 2.3%, with x its least value:
  alpha = ln(5 / 2.3) / ln(7,985 / 2,285) = 0.6206 and x = 2,285 (5 / 6)^(1 / alpha) = 1,703 ms.
- Half of all first tokens come within 185 ms: a share of 0.5 / 0.94 of the body, 0.0801 sigmas above its median:
  median = 185 / exp(0.0801 sigma) = 174.9 ms.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

Milliseconds = Annotated[float, Field(ge=0, le=600_000)]
Share = Annotated[float, Field(ge=0, le=1)]
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Mixture:
    """Times to the first token: a lognormal body and, for `tail_share` of the calls, a Pareto tail."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    median_ms: Milliseconds = 0  # of the body
    sigma: Annotated[float, Field(ge=0, le=5)] = 0  # of the body's logarithm
    tail_share: Share = 0
    tail_from_ms: Milliseconds = 0  # the tail's least value
    tail_alpha: Annotated[float, Field(gt=0)] = 1  # the smaller, the heavier
    longest_ms: Milliseconds = 60_000  # a tail with alpha below 1 has no mean: no call takes longer than this

    def draw_ms(self, rng: random.Random) -> float:
        """One time, in milliseconds."""
        if rng.random() < self.tail_share:
            return min(self.tail_from_ms * rng.paretovariate(self.tail_alpha), self.longest_ms)
        return min(self.median_ms * math.exp(self.sigma * rng.gauss(0, 1)), self.longest_ms)


@dataclass(frozen=True, slots=True)
class Profile:
    """The latencies of a simulated provider."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    first: Mixture = Mixture()
    each_ms: Milliseconds = 0  # between two tokens

    def to_json(self) -> str:
        return json.dumps(asdict(self))


ARTICLES = Profile(
    Mixture(median_ms=174.9, sigma=0.7, tail_share=0.06, tail_from_ms=1_703, tail_alpha=0.6206), each_ms=5
)
ARTICLES_TOKENS = 4
ARTICLES_TIMEOUT_S = 8.0
