"""What a call to a model has used, in tokens and in US dollars at the router's prices, and the metrics of that."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from prometheus_client import Counter

from hedgerow.llm.v1 import llm_pb2
from services.runtime.routing import Model

_TOKENS = Counter("hedgerow_tokens", "Tokens that models have read and written.", ["model", "kind"])
_COST_USD = Counter("hedgerow_cost_usd", "What calls to models cost, in US dollars at the router's prices.", ["model"])
_tokens, _cost_usd = cache(_TOKENS.labels), cache(_COST_USD.labels)


class Bill(NamedTuple):
    """Tokens that models have read and written, and what they cost."""

    tokens: int = 0
    usd: float = 0.0


def count(name: str, model: Model | None, finish: llm_pb2.Finish) -> Bill:
    """Put what a call of the model `name` has used into the metrics: that is what its provider bills. Returns what goes
    on the account of who asked, where a provider's cache that may hold other tenants' prompts has the price of other
    tokens: else its cost would tell what others have asked. A model that is in no table of the router's costs nothing.
    """
    used = finish.usage
    _tokens(name, "prompt").inc(used.prompt_tokens)
    _tokens(name, "completion").inc(used.completion_tokens)
    tokens = used.prompt_tokens + used.completion_tokens
    if model is None:
        return Bill(tokens)
    cached, written = finish.billed_cached_tokens, finish.billed_cache_write_tokens
    _cost_usd(name).inc(model.cost_usd(used.prompt_tokens, used.completion_tokens, cached, written))
    cached, written = used.cached_prompt_tokens, used.cache_write_tokens
    return Bill(tokens, model.cost_usd(used.prompt_tokens, used.completion_tokens, cached, written))
