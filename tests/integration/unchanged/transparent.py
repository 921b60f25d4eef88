"""A gateway that changes nothing unless it is asked to, before a provider that records what it gets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.processes import free_port
from tests.conftest import starting
from tests.recording_provider import RecordingProvider, recording_provider

OPERATORS = "the operator's"  # key at the provider


@dataclass(frozen=True)
class Transparent:
    """`gpt` is a model behind chat completions, `claude` one behind Messages, `resp` one behind chat completions and
    Responses, `alone` one behind Responses alone. `url`: of the API by HTTP; `target`: by gRPC."""

    provider: RecordingProvider
    url: str
    target: str


@asynccontextmanager
async def transparent_gateway(logs: Path, **settings: str) -> AsyncIterator[Transparent]:
    """All models have one provider."""
    port = free_port()
    async with recording_provider() as provider, starting(logs) as start:
        own = {"base_url": provider.url, "api_key": OPERATORS}
        of_openai = {f"openai__{name}": value for name, value in own.items()}
        able = json.dumps(["tools", "logprobs", "logit_bias", "images"])
        chat = await start("llm", "chat", engine="openai", openai__model="gpt-x", openai__features=able, **of_openai)
        of_anthropic = {f"anthropic__{name}": value for name, value in own.items()}
        claude = await start("llm", "claude", engine="anthropic", anthropic__model="claude-x", **of_anthropic)
        addresses = {"gpt": chat.spec.address, "claude": claude.spec.address}
        for name, apis in (("resp", ["chat_completions", "responses"]), ("alone", ["responses"])):
            of_model = {"openai__model": "gpt-x", "openai__apis": json.dumps(apis)}
            of_model |= {f"openai__{name}": value for name, value in own.items()}
            addresses[name] = (await start("llm", name, engine="openai", **of_model)).spec.address
        gateway = await start(
            "gateway",
            llm_addresses=json.dumps(addresses),
            cache_address="",
            router_address="",
            http_address=f"127.0.0.1:{port}",
            profile="transparent",
            **settings,
        )
        yield Transparent(provider, f"http://127.0.0.1:{port}", gateway.spec.address)


def own_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """What is the caller's own in a request: all but what the gateway says itself to every provider."""
    return {name: given for name, given in body.items() if name not in ("model", "stream", "stream_options")}


def events_of(text: str) -> list[Any]:
    """The events of a stream."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
