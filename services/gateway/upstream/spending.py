"""What a call to a model has used, in tokens and in US dollars at the router's prices."""

from __future__ import annotations

from typing import NamedTuple

from hedgerow.chat.v1 import chat_pb2
from services.runtime.routing import Model


class Bill(NamedTuple):
    """Tokens that a model has read and written, and what they cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


def bill(model: Model | None, used: chat_pb2.Usage) -> Bill:
    """The bill for what `model` has used. A model that is in no table of the router's costs nothing."""
    usd = model.cost_usd(used.prompt_tokens, used.completion_tokens) if model else 0.0
    return Bill(used.prompt_tokens, used.completion_tokens, usd)
