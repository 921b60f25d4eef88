"""What a call to a model has used, in tokens and in US dollars at the router's prices, and the metrics of that."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from prometheus_client import Counter

from hedgerow.chat.v1 import chat_pb2
from services.runtime.routing import Model

_TOKENS = Counter("hedgerow_tokens", "Tokens that models have read and written.", ["model", "kind"])
_COST_USD = Counter("hedgerow_cost_usd", "What calls to models cost, in US dollars at the router's prices.", ["model"])
_tokens, _cost_usd = cache(_TOKENS.labels), cache(_COST_USD.labels)


class Bill(NamedTuple):
    """Tokens that a model has read and written, and what they cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def plus(self, more: Bill) -> Bill:
        return Bill(
            self.prompt_tokens + more.prompt_tokens,
            self.completion_tokens + more.completion_tokens,
            self.usd + more.usd,
        )

    def since(self, booked: Bill) -> Bill:
        """What is not in `booked`. An estimate that was too high is not given back."""
        return Bill(
            max(self.prompt_tokens - booked.prompt_tokens, 0),
            max(self.completion_tokens - booked.completion_tokens, 0),
            max(self.usd - booked.usd, 0.0),
        )

    def at_least(self, booked: Bill) -> Bill:
        return Bill(
            max(self.prompt_tokens, booked.prompt_tokens),
            max(self.completion_tokens, booked.completion_tokens),
            max(self.usd, booked.usd),
        )


NOTHING = Bill()


def bill(model: Model | None, used: chat_pb2.Usage) -> Bill:
    """The bill for what `model` has used. A model that is in no table of the router's costs nothing."""
    usd = model.cost_usd(used.prompt_tokens, used.completion_tokens) if model else 0.0
    return Bill(used.prompt_tokens, used.completion_tokens, usd)


def count(model: str, more: Bill) -> None:
    """Put what `model` has used besides into the metrics."""
    _tokens(model, "prompt").inc(more.prompt_tokens)
    _tokens(model, "completion").inc(more.completion_tokens)
    _cost_usd(model).inc(more.usd)
