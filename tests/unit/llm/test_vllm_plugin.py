"""What runs inside vLLM's processes, but for what it mends there."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest

from services.llm import vllm_plugin


def test_garbage_is_looked_for_again_once_vllm_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    mends = ("mend_expand_on_cpu", "spin_briefly", "look_again_soon", "meet_where_told", "tell_what_broke")
    for name in (*mends, "rank_without_compiling", "bound_grammars", "load_compiled_on_cpu", "choose_of_some_alone"):
        monkeypatch.setattr(vllm_plugin, f"_{name}", lambda: None)
    gc.disable()
    try:
        vllm_plugin.install()
        assert gc.isenabled()
    finally:
        gc.enable()


def test_a_compiled_function_that_was_loaded_has_what_vllm_calls_on_it() -> None:
    loaded = SimpleNamespace(_artifacts=SimpleNamespace(compiled_fn=lambda: "compiled"))
    assert vllm_plugin.loading_whole(lambda file, f_globals: loaded)("file", f_globals={}) is loaded
    loaded._artifacts.compiled_fn.finalize_loading("the settings")


def test_what_vllm_s_own_backend_compiled_is_left_as_it_is() -> None:
    finished: list[str] = []
    loaded = SimpleNamespace(_artifacts=SimpleNamespace(compiled_fn=SimpleNamespace(finalize_loading=finished.append)))
    vllm_plugin.loading_whole(lambda: loaded)()._artifacts.compiled_fn.finalize_loading("the settings")
    assert finished == ["the settings"]


def test_nothing_is_chosen_of_no_rows() -> None:
    def largest(rows: list[int], most: int) -> list[int]:
        return [max(rows) + most]

    apply = vllm_plugin.where_some(largest)
    assert apply([1, 2], 3) == [5]
    assert apply([], 3) == []
