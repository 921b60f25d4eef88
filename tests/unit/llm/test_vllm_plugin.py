"""The plugin in vLLM's processes, without its patches."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pytest

from services.llm import vllm_plugin
from services.llm.config import VllmSettings
from services.llm.vllm.args import environment

_CHANGES = (
    "fix_expand_on_cpu",
    "spin_briefly",
    "look_again_soon",
    "keep_file_store_in_rpc_path",
    "report_broken_grammars",
    "rank_without_compiling",
    "bound_grammars",
    "load_compiled_on_cpu",
    "choose_of_some_alone",
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The changes that were made to vLLM, by name. The garbage collector is off, as the service starts vLLM."""
    done: list[str] = []
    for name in _CHANGES:
        monkeypatch.setattr(vllm_plugin, f"_{name}", partial(done.append, name))
    gc.disable()
    yield done
    gc.enable()


def test_garbage_is_looked_for_again_once_vllm_is_imported(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(vllm_plugin.SWITCH, "1")
    vllm_plugin.install()
    assert gc.isenabled()
    assert made == list(_CHANGES)


def test_a_vllm_that_the_llm_service_did_not_start_is_left_as_it_is(
    made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(vllm_plugin.SWITCH, raising=False)
    vllm_plugin.install()
    assert not gc.isenabled()
    assert made == []


def test_another_version_of_vllm_is_left_as_it_is_but_for_its_garbage(
    made: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(vllm_plugin.SWITCH, "1")
    monkeypatch.setattr(vllm_plugin, "_vllm_version", lambda: "0.33.1")
    vllm_plugin.install()
    assert gc.isenabled()
    assert made == []
    assert "vLLM 0.32.x, and 0.33.1 is installed" in caplog.text


def test_the_service_turns_its_changes_on() -> None:
    assert environment(VllmSettings(model="here"))[vllm_plugin.SWITCH] == "1"


def test_a_compiled_function_that_was_loaded_has_what_vllm_calls_on_it() -> None:
    loaded = SimpleNamespace(_artifacts=SimpleNamespace(compiled_fn=lambda: "compiled"))
    assert vllm_plugin.loading_whole(lambda file, f_globals: loaded)("file", f_globals={}) is loaded
    loaded._artifacts.compiled_fn.finalize_loading("the settings")


def test_functions_compiled_by_vllms_own_backend_are_unchanged() -> None:
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
