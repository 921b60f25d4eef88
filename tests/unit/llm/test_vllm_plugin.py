"""What runs inside vLLM's processes, but for what it mends there."""

from __future__ import annotations

import gc

import pytest

from services.llm import vllm_plugin


def test_garbage_is_looked_for_again_once_vllm_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    mends = ("mend_expand_on_cpu", "spin_briefly", "look_again_soon", "meet_where_told", "tell_what_broke")
    for name in (*mends, "rank_without_compiling", "bound_grammars"):
        monkeypatch.setattr(vllm_plugin, f"_{name}", lambda: None)
    gc.disable()
    try:
        vllm_plugin.install()
        assert gc.isenabled()
    finally:
        gc.enable()
