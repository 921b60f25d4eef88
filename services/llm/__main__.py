"""The composition root: `python -m services.llm`."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from multiprocessing import current_process

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.llm.v1 import llm_pb2
from services.llm import engines
from services.llm.config import LlmSettings
from services.llm.engine import Engine
from services.llm.errors import BadEngineSettings
from services.llm.servicer import LLMServicer, OwnLimits
from services.runtime.errors import InvalidInput
from services.runtime.process import serve

_SERVICE = llm_pb2.DESCRIPTOR.services_by_name["LLMService"]
_log = logging.getLogger("services.llm")


class _EngineFailed(Exception):
    """The engine can never serve again, so neither can this process."""


@asynccontextmanager
async def assemble(settings: LlmSettings) -> AsyncIterator[Mapping[ServiceDescriptor, LLMServicer]]:
    """The service, its engine warm. Exits the process with 1 when the engine dies, with 2 when it cannot start."""
    engine = await _start(settings)
    try:
        await _warm_up(engine)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_watch(engine))
            limits = OwnLimits(settings.default_max_tokens, settings.max_tokens_cap)
            servicer = LLMServicer(engine, limits, settings.identity)
            yield serve.Assembled({_SERVICE: servicer}, follow_health=servicer.follow_health)
            watch.cancel()
    except BaseExceptionGroup as errors:
        if errors.subgroup(_EngineFailed):
            raise SystemExit(1) from None  # the supervisor of this process starts it again
        raise
    finally:
        await engine.close()


async def _start(settings: LlmSettings) -> Engine:
    try:
        return await engines.start(settings, _log.info)
    except BadEngineSettings as error:
        _log.error("%s", error)
        raise SystemExit(2) from None


async def _warm_up(engine: Engine) -> None:
    """Warm the engine up. Exits the process with 2 where it refuses a plain question, as a model without a chat
    template does: it would refuse every question."""
    try:
        await engine.warm_up(_log.info)
    except ExceptionGroup as errors:
        if refused := errors.subgroup(InvalidInput):
            _log.error("the model answers no question: %s", refused.exceptions[0])
            raise SystemExit(2) from None
        raise


async def _watch(engine: Engine) -> None:
    why = await engine.wait_failed()
    _log.error("the engine failed: %s", why)
    raise _EngineFailed(why)


SERVICE = serve.Service("llm", LlmSettings, [_SERVICE], assemble)

if __name__ == "__main__":
    serve.main(*SERVICE)
elif current_process().name.startswith(("EngineCore", "VllmWorker")):  # vLLM's, about to import it
    gc.disable()  # until `vllm_plugin.install`, which these call and vLLM's other processes do not
