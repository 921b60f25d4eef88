"""Removes cache usage from a provider's own events where its cache may hold other tenants' prompts."""

from __future__ import annotations

import json
import re
from typing import Any

from services.runtime.strict_json import compact

_MAY_HAVE_USAGE = re.compile(r'"(usage|timings)"\s*:\s*\{')
_OF_CACHE, _OF_PRICE = re.compile("cache"), re.compile("cost|discount")
_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")  # Anthropic's, which `input_tokens` leaves out


def without_cache(event: str) -> str:
    """The event, whose usage takes cached tokens for plain ones, as an answer's account does. An event that has no
    usage stays as it is, byte by byte."""
    if not _MAY_HAVE_USAGE.search(event):
        return event
    return compact(_without(json.loads(event))).decode()


def _without(said: Any) -> Any:
    if isinstance(said, list):
        return [_without(each) for each in said]
    if not isinstance(said, dict):
        return said
    kept = {name: _without(given) for name, given in said.items() if name != "timings"}  # llama.cpp's
    if isinstance(usage := said.get("usage"), dict):
        kept["usage"] = _plain(usage)
    return kept


def _plain(usage: dict[str, Any]) -> dict[str, Any]:
    counts = {name: _without_cached(name, given) for name, given in usage.items() if not _OF_PRICE.search(name)}
    if isinstance(counts.get("input_tokens"), int):
        counts["input_tokens"] += sum(given for name in _BESIDE if isinstance(given := usage.get(name), int))
    return counts


def _without_cached(name: str, given: Any) -> Any:
    """A count of what was cached is 0, at any depth."""
    if isinstance(given, dict):
        return {each: _without_cached(f"{name}.{each}", count) for each, count in given.items()}
    is_count = isinstance(given, int | float) and not isinstance(given, bool)
    return 0 if is_count and _OF_CACHE.search(name) else given
