"""Loading vLLM without holding up the event loop, and giving up on it half-way without leaving a process behind."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import logging
import multiprocessing
import os
import shutil
import time
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

from services.llm import vllm_plugin
from services.llm.config import VllmSettings
from services.llm.engine import Progress
from services.llm.errors import BadEngineSettings
from services.llm.vllm.args import check_early, engine_args, environment, set_environment
from services.llm.vllm.parsers import found

_POLL_S = 0.05
_FOLDER_PREFIX = "hedgerow-vllm-"
_LONGEST_FOLDER = 40  # bytes: the path of a socket has 107 at most
_LOCK = "lock"
_log = logging.getLogger(__name__)


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


class Sockets:
    """The folder `name`, in which the processes of one vLLM meet, made for its owner alone. vLLM never removes a
    socket, and would leave them in /tmp.

    The folder goes with its process. A process that was killed cannot remove its folder, so the next process that
    starts does: a folder has a lock file, which its process holds for as long as it runs.
    """

    def __init__(self, parent: str = ""):
        """`parent`: where to make it; the folder for temporary files, or /tmp where the path of that is too long."""
        parent = parent or (found if len(found := gettempdir()) <= _LONGEST_FOLDER else "/tmp")
        sweep(Path(parent))
        self.name = mkdtemp(prefix=_FOLDER_PREFIX, dir=parent)
        new = Path(self.name, f"{_LOCK}.new")
        lock = os.open(new, os.O_CREAT | os.O_WRONLY, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(new.with_name(_LOCK))  # what has no such file is not swept
        weakref.finalize(self, _remove, Path(self.name), lock)


def sweep(parent: Path) -> None:
    """Remove the folders of processes that are gone. One that belongs to another user stays."""
    for path in sorted(parent.glob(f"{_FOLDER_PREFIX}*/{_LOCK}")):
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent)
                _log.info("removed %s, which a process that was killed has left", path.parent)
            finally:
                os.close(lock)


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
