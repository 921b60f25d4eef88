"""What the samples of an arm come to. No call is left out: one that timed out counts with its time, and one that failed
or was refused takes for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.jagged.arms import COMPLETION_USD_PER_MTOK, PROMPT_USD_PER_MTOK
from bench.jagged.tally import Tally
from bench.load import Outcome, Sample
from bench.stats import TO_THE_TAIL, percentiles


@dataclass
class Record:
    """All blocks of one arm."""

    samples: list[Sample] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)  # the provider's own counts

    def add(self, samples: Sequence[Sample], tally: Tally) -> None:
        """One block more."""
        self.samples += samples
        self.tally += tally

    def summary(self) -> dict[str, object]:
        """Times in milliseconds; rates and shares of all requests."""
        count, outcomes = len(self.samples), Counter(sample.outcome for sample in self.samples)
        return {
            "total_ms": self._percentiles([sample.waited_s for sample in self.samples]),
            "ttft_ms": self._percentiles([sample.waited_first_s for sample in self.samples]),
            "timeout_rate": round(outcomes[Outcome.TIMEOUT] / count, 5),
            "success_rate": round(sum(sample.good for sample in self.samples) / count, 5),
            "outcomes": {outcome.value: outcomes[outcome] for outcome in Outcome},
            "calls_per_request": round(self.tally.started / count, 4),
            "extra_calls_share": round(self._extra() / count, 4),
            "cost_usd_per_1000": round(self._cost_usd() / count * 1000, 6),
        }

    @property
    def hit_rate(self) -> float:
        """Share of requests that the cache answered."""
        return round(sum(sample.hit for sample in self.samples) / len(self.samples), 4)

    def _extra(self) -> int:
        """Calls that the provider served beyond one for each request that needed a generation of its own."""
        needed = sum(not (sample.hit or sample.shared) for sample in self.samples)
        return max(0, self.tally.started - needed)

    def _cost_usd(self) -> float:
        """At the provider's prices, for all it generated: lost races and answers that came too late included."""
        prompt, completion = self.tally.prompt_tokens, self.tally.completion_tokens
        return (prompt * PROMPT_USD_PER_MTOK + completion * COMPLETION_USD_PER_MTOK) / 1e6

    @staticmethod
    def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
        return percentiles([each * 1000 for each in seconds], 1, TO_THE_TAIL)
