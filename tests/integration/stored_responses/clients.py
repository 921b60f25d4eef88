"""Tenants of a gateway that stores responses, and OpenAI's client for each."""

from __future__ import annotations

from typing import Any

import openai

from tests.integration.unchanged.transparent import Transparent
from tests.keys import digest

KEYS = {"acme": "secret", "umbra": "test", "crowd": "many"}
TENANTS: dict[str, dict[str, Any]] = {name: {"keys": [digest(key)]} for name, key in KEYS.items()}
TENANTS["crowd"]["hits"] = {"scope": "user"}
TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
RESULT: Any = {"type": "function_call_output", "call_id": "call_1", "output": "21"}
USER = {"type": "message", "role": "user", "content": "Capital of Japan?"}


def client_of(served: Transparent, tenant: str, **headers: str) -> openai.AsyncOpenAI:
    """OpenAI's own, which refuses what is not as its types have it."""
    return openai.AsyncOpenAI(
        base_url=f"{served.url}/v1",
        api_key=KEYS[tenant],
        max_retries=0,
        timeout=20,
        default_headers=headers,
        _strict_response_validation=True,
    )


def text_in(said: dict[str, Any]) -> str:
    content = said["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content if "text" in part)


def reference_to(item: Any) -> Any:
    return {"type": "item_reference", "id": item.id}
