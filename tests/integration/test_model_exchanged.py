"""A model of a mesh file is exchanged for another of the same name, while it is asked: two simulated providers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.running_up import Up, ports_in_a_row, running_up
from tests.recording_provider import CHAT, RecordingProvider, recording_provider
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)


def says(provider: RecordingProvider, text: str) -> None:
    begin, delta, _, *end = CHAT
    choice = {**delta["choices"][0], "delta": {"content": text}}
    provider.chat = [begin, {**delta, "choices": [choice]}, *end]


async def test_answers_of_an_exchanged_model_are_never_served(tmp_path: Path) -> None:
    port, file = ports_in_a_row(8), tmp_path / "mesh.yaml"

    def write(url: str) -> None:
        content = {
            "models": {"m": {"url": url}},
            "cache": {"exact": True},
            "gateway": {"address": port, "http": port + 7, "settings": {"stage_caps_ms": {"cache": 10_000}}},
        }
        file.write_text(yaml.safe_dump(content))

    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(recording_provider())
        new = await stack.enter_async_context(recording_provider())
        says(old, "Old.")
        says(new, "New.")
        write(old.url)
        running = running_up(tmp_path / "state", port, file=file)
        up: Up = await asyncio.to_thread(running.__enter__)
        try:
            http = await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port + 7}", timeout=30)
            )

            async def asked(model: str = "m", **options: Any) -> tuple[str, str]:
                body = {"model": model, "messages": [{"role": "user", "content": "Who are you?"}], **options}
                reply = await http.post("/v1/chat/completions", json=body)
                if reply.status_code != 200:
                    return f"status {reply.status_code}", ""
                body = reply.json()
                return body["choices"][0]["message"]["content"], body["hedgerow"]["cache"]["verdict"]

            for model in ("m", "auto"):
                await until(lambda model=model: asked(model), holds=lambda value: value == ("Old.", "exact"))
            line = f"{file} is in force: router started again, llm-m started again"
            write(new.url)
            meanwhile = []
            in_force = asyncio.create_task(asyncio.to_thread(up.wait_for, line))
            while not in_force.done():
                meanwhile += [await asked("m"), await asked("auto")]
                await asyncio.sleep(0.02)
            await in_force
            for model in ("m", "auto"):
                await until(lambda model=model: asked(model), holds=lambda value: value == ("New.", "exact"))
                for _ in range(5):
                    assert await asked(model) == ("New.", "exact"), meanwhile
            assert ("Old.", "exact") in meanwhile, "the old table gives the old answer"
            assert old.asked
            assert new.asked
        finally:
            await asyncio.to_thread(running.__exit__, None, None, None)
