"""When an answer begins: at its first text, thought or call, as a gateway's own `ttft_ms` and metrics have it."""

from __future__ import annotations

from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.llm.v1 import llm_pb2

_KINDS = ("delta", "reasoning", "tool_call")


def is_in_event(event: gateway_pb2.Event) -> bool:
    """Whether an event of a gateway's has any of them."""
    return event.WhichOneof("kind") in _KINDS


def is_in_message(message: llm_pb2.GenerateResponse) -> bool:
    """Whether a message of a model's has any of them."""
    return bool(message.text or message.reasoning or message.tool_calls)
