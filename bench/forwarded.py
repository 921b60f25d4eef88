"""Time to first token that the gateway adds: to requests that it forwards as they are, and to translated ones.

One gateway by HTTP, a simulated provider of two APIs that answers at once, and a model service for each of its APIs.
The same question is asked in either API of the provider itself, of the model behind the same API (forwarded) and of the
model behind the other API (translated), call by call. Both APIs have as many calls on each path, so that it makes no
difference which of them costs less to read and to write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Any

import aiohttp

from bench.asking import added, in_turns, posted
from bench.cluster import Progress, an_address, clustered
from bench.stats import percentiles

SAMPLES, WARM_UP = 1_000, 100  # calls per path, prompt and API
PROMPTS = {"short": "What is the capital of France?", "32 KiB": "Q: 2 + 2?\nA: 4\n\n" * 2_048}
_APIS = {"chat": "chat/completions", "messages": "messages"}  # and the names of the models behind them
_OTHER = {"chat": "messages", "messages": "chat"}


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About two minutes."""
    async with clustered(progress) as cluster, aiohttp.ClientSession() as session:
        provider, http = await cluster.provider(4), an_address()
        at = {"model": "x", "base_url": provider}
        chat = await cluster.start("llm-chat", "services.llm", engine="openai", openai=at)
        messages = await cluster.start("llm-messages", "services.llm", engine="anthropic", anthropic=at)
        models = {"chat": chat.spec.address, "messages": messages.spec.address}
        await cluster.gateway(http_address=http, llm_addresses=models, profile="transparent")
        measured = {}
        for name, prompt in PROMPTS.items():
            progress(f"{SAMPLES} calls by each path and API, in turns, prompt: {name}")
            measured[name] = await _measured(session, provider, f"http://{http}/v1", prompt)
    return {"samples": SAMPLES * len(_APIS), "prompts": measured}


async def _measured(session: aiohttp.ClientSession, provider: str, gateway: str, prompt: str) -> dict[str, Any]:
    async def ask(base: str, models: Mapping[str, str], number: int) -> list[float]:
        """Milliseconds to the first text by each API."""
        asked = {f"{base}/{_APIS[api]}": _body(models[api], prompt) for api in _APIS}
        return [(await posted(session, url, body))[0] * 1000 for url, body in asked.items()]

    same = {api: api for api in _APIS}
    ways = {
        "direct": partial(ask, provider, same),
        "forwarded": partial(ask, gateway, same),
        "translated": partial(ask, gateway, _OTHER),
    }
    times = {name: [*chain(*found)] for name, found in (await in_turns(ways, SAMPLES, WARM_UP)).items()}
    first = {name: percentiles(each) for name, each in times.items()}
    pairs = list(zip(times["forwarded"], times["translated"], strict=True))
    return {
        "ttft_ms": first,
        "added_ms": {name: added(first[name], first["direct"]) for name in ("forwarded", "translated")},
        "forwarded_sooner": round(sum(one < other for one, other in pairs) / len(pairs), 3),
    }


def _body(model: str, prompt: str) -> bytes:
    asked = {"max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": prompt}]}
    return json.dumps({"model": model, **asked}).encode()
