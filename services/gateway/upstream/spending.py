"""The usage of calls to models, in tokens and in US dollars at the router's prices, and its metrics."""

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
    """Put the usage of a call of the model `name` into the metrics, at the provider's price. Returns the tenant's bill,
    in which tokens of a provider's cache that may hold other tenants' prompts have the price of other tokens: else the
    cost would reveal other tenants' questions. A model in no table of the router costs nothing.
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
