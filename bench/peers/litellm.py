"""LiteLLM's proxy, from PyPI: installed into a folder of its own, started with one worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from bench import foreign
from bench.environments import environment
from launcher.processes import ServiceProcess

VERSION = "1.106.2"
_STARTS_S = 90.0


async def installed(progress: Callable[[str], None]) -> Path:
    """Its command. Its packages are fetched the first time."""
    return await asyncio.to_thread(_installed, progress)


def _installed(progress: Callable[[str], None]) -> Path:
    return environment("litellm", f"litellm[proxy]=={VERSION}\n", progress) / "litellm"


def configured(file: Path, models: Mapping[str, str]) -> Path:
    """Its configuration for models by name, each at its provider's URL."""
    listed = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_base": url, "api_key": "none"}}
        for name, url in models.items()
    ]
    settings = {"num_retries": 0, "telemetry": False, "drop_params": True}
    file.write_text(yaml.safe_dump({"model_list": listed, "litellm_settings": settings}))
    return file


async def serving(process: ServiceProcess, url: str) -> None:
    """Return when it answers. Raises `ServiceFailed`."""
    await foreign.serving(process, f"{url}/health/liveliness", _STARTS_S)
