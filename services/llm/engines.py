"""The engines that an llm service can run, by name: each a function that starts one. Another is a module and a line.

They are imported when they are asked for: vLLM takes seconds to import, and is not always installed. An engine of
another package is named by its place, `package.module:start`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module

from services.llm.config import LlmSettings
from services.llm.engine import Engine, Progress
from services.llm.errors import BadEngineSettings

Start = Callable[[LlmSettings, Progress], Awaitable[Engine]]
ENGINES: Mapping[str, str] = {
    "vllm": "services.llm.vllm.engine:start",
    "openai": "services.llm.providers.openai:start",
    "anthropic": "services.llm.providers.anthropic:start",
}


async def start(settings: LlmSettings, progress: Progress) -> Engine:
    """The engine that the settings ask for, ready to serve. Raises `BadEngineSettings`."""
    module, _, function = ENGINES.get(settings.engine, settings.engine).partition(":")
    try:
        begin: Start = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join(ENGINES)
        if settings.engine == "vllm" and isinstance(error, ModuleNotFoundError) and error.name == "vllm":
            raise BadEngineSettings("engine: vllm is not installed: pip install 'hedgerow[llm]'") from error
        limit = f"one of {known}, or package.module:function"
        raise BadEngineSettings(f"engine: {limit}, got {settings.engine}: {error}") from error
    return await begin(settings, progress)
