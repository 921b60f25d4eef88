"""Which model a server has that is called by its URL alone: a vLLM server has one, and refuses all other names."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Mapping
from typing import Any

_WAIT_S = 1.5
_LARGEST_BYTES = 1024 * 1024


async def with_its_name(section: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The section of a model, by the name that the server at its first URL has for it: the one that it lists, where it
    lists one alone. As it is where the server does not answer in 1.5 s."""
    listed = await asyncio.to_thread(_listed, section["url"][0], key)
    return {**section, "model": listed[0]} if len(listed) == 1 else dict(section)


def _listed(url: str, key: str) -> list[str]:
    request = urllib.request.Request(
        f"{url.rstrip('/')}/models", headers={"authorization": f"Bearer {key}"} if key else {}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # as the service asks: directly
    try:
        with opener.open(request, timeout=_WAIT_S) as answer:
            rows = json.loads(answer.read(_LARGEST_BYTES))["data"]
        return [str(row["id"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return []
