"""The usage of calls to models, in tokens and in US dollars at the router's prices, and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol

from prometheus_client import Counter

from hedgerow.llm.v1 import llm_pb2
from services.gateway.upstream.fleet import Pool
from services.gateway.upstream.router import Routes
from services.runtime.routing import Model

_TOKENS = Counter("hedgerow_tokens", "Tokens of prompts and completions.", ["model", "kind"])
_COST_USD = Counter("hedgerow_cost_usd", "Cost of calls to models, in US dollars at the router's prices.", ["model"])
_tokens, _cost_usd = cache(_TOKENS.labels), cache(_COST_USD.labels)


class Bill(NamedTuple):
    """Tokens that models have read and written, and what they cost."""

    tokens: int = 0
    usd: float = 0.0


class BilledCall(Protocol):
    """A call whose prompt a model has read."""

    @property
    def pool(self) -> Pool:
        """The model's replicas."""

    def prompt_tokens(self) -> int:
        """The tokens of the request's prompt by the backend's count; 0 without one."""

    def used(self, prompt_tokens: int) -> llm_pb2.Finish:
        """The usage that the backend reports, or an estimate for a prompt of `prompt_tokens`."""


def book(calls: Sequence[BilledCall], routes: Routes, estimate: Callable[[], int]) -> Bill:
    """Bill the calls of a generation that is over: the usage of each, at the price of its model. A call without a count
    has the prompt tokens of one with a count; where none has, `estimate` gives them."""
    if not calls:
        return Bill()
    prompt = max(call.prompt_tokens() for call in calls) or estimate()
    bills = [count(call.pool.model, routes.model(call.pool.model), call.used(prompt)) for call in calls]
    return Bill(sum(bill.tokens for bill in bills), sum(bill.usd for bill in bills))


def count(name: str, model: Model | None, finish: llm_pb2.Finish) -> Bill:
    """Add the usage of a call of the model `name` to the metrics, at the provider's prices. Returns the tenant's bill.

    In the bill a prompt token from the provider's cache has the full price wherever that cache may hold other tenants'
    prompts: a discount would reveal that another tenant has asked the same. A model without a price costs nothing.
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
