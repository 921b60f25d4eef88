"""From our settings to vLLM's: the environment it reads, and its `AsyncEngineArgs`."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from services.llm import vllm_plugin
from services.llm.config import VllmSettings
from services.llm.errors import BadEngineSettings
from services.runtime.errors import shorten
from services.runtime.process.cores import usable_cores
from services.runtime.security.secrets import shown

_SEVERAL_MACHINES = {"nnodes", "data_parallel_address", "distributed_executor_backend"}  # any of them may mean so

BOUNDED = "guidance"
_BINDING, _UNBOUND = "VLLM_CPU_OMP_THREADS_BIND", "nobind"


def check_early(settings: VllmSettings) -> None:
    """Raise BadEngineSettings for errors that can be found without importing vLLM, which takes some ten seconds."""
    model = settings.model
    if not model:
        raise BadEngineSettings("vllm.model: must be set")
    if model.startswith(("/", "./", "../")) and not os.path.exists(model):  # no name on a hub begins so
        raise BadEngineSettings(f"vllm.model: a file or folder that exists, got {model}")


def environment(settings: VllmSettings) -> dict[str, str]:
    """Settings that vLLM and its libraries read from the environment rather than from arguments."""
    variables = {
        vllm_plugin.SWITCH: "1",
        _BINDING: _UNBOUND,
        "VLLM_LOGGING_LEVEL": "WARNING",
        # It would have parsers write grammars of their own, past the trial and for another backend than ours.
        "VLLM_ENFORCE_STRICT_TOOL_CALLING": "0",
        # gRPC's threads do not survive a fork.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    openmp = Path(sys.prefix, "lib", "libiomp5.so")  # comes with vLLM for CPUs, whose speculation needs it to be quick
    if openmp.exists():
        variables["LD_PRELOAD"] = str(openmp)  # read by the processes vLLM starts; this one is past it
        # vLLM's own values, which it sets only where it binds threads: by default they would spin for 200 ms after each
        # step, and starve whatever shares the cores.
        variables |= {"KMP_BLOCKTIME": "5", "KMP_TPAUSE": "0"}
        if os.environ.get(_BINDING, _UNBOUND) == _UNBOUND:  # else vLLM counts the cores that it binds threads to
            variables["OMP_NUM_THREADS"] = str(usable_cores())
    if Path(settings.model).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"  # everything is here: do not wait for a hub that may not answer
    if not _SEVERAL_MACHINES & (settings.model_extra or {}).keys():
        variables["VLLM_HOST_IP"] = "127.0.0.1"  # its processes are all here; else it asks for a way to 8.8.8.8
    return variables


def set_environment(variables: Mapping[str, str]) -> None:
    """Set what the operator has not set. Before vLLM is imported."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def engine_args(settings: VllmSettings) -> Any:
    """vLLM's `AsyncEngineArgs`. Raises BadEngineSettings naming a field that vLLM lacks or whose type is wrong."""
    from vllm.config import StructuredOutputsConfig
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    types = {field.name: field.type for field in dataclasses.fields(AsyncEngineArgs)}
    fields = check_fields(settings.engine_fields(), types)
    # Of vLLM's backends the one whose every step is bounded; with the others one caller's regular expression holds up
    # the engine for a minute (docs/adr/0014-structured-output.md).
    fields.setdefault("structured_outputs_config", StructuredOutputsConfig(backend=BOUNDED))
    if current_platform.is_cpu():
        fields.setdefault("kv_cache_memory_bytes", round(settings.cpu_kvcache_space_gib * 2**30))
        fields.setdefault("enforce_eager", True)
    if settings.speculative_config:
        fields.setdefault("per_request_spec_decode_metrics", "summary")  # what usage counts come from
    return AsyncEngineArgs(**fields)


def check_fields(fields: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` with their values read as `types` say. Raises BadEngineSettings."""
    return {name: _checked(name, value, types) for name, value in fields.items()}


def _checked(name: str, value: Any, types: Mapping[str, Any]) -> Any:
    if name not in types:
        hint = get_close_matches(name, types, n=1)
        suggestion = f"; did you mean {hint[0]}?" if hint else ""
        raise BadEngineSettings(f"vllm.{name}: vLLM has no such setting{suggestion}")
    if isinstance(types[name], str):  # a forward reference: left to vLLM
        return value
    problem = ""
    for candidate in _readings(value):
        try:
            return TypeAdapter(types[name]).validate_python(candidate)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
    raise BadEngineSettings(f"vllm.{name}: {problem}, got {shorten(repr(shown(value, name)))}")


def _readings(value: Any) -> Iterator[Any]:
    """The value itself, and what it says when it is JSON text: the environment holds only text."""
    if isinstance(value, str):
        with suppress(ValueError):
            yield json.loads(value)
    yield value
