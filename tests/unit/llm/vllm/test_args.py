"""How a setting becomes one of vLLM's arguments, with a stand-in for the list of those; a model's own sampling."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from services.llm.config import VllmSettings
from services.llm.errors import BadEngineSettings
from services.llm.vllm.args import check_early, check_fields, environment
from services.llm.vllm.params import own_sampling

TYPES: dict[str, Any] = {
    "max_num_seqs": int | None,
    "scheduling_policy": Literal["fcfs", "priority"],
    "limit_mm_per_prompt": dict[str, int],
    "async_scheduling": bool | None,
    "revision": str | None,
    "quantization_config": "a forward reference",
}


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("max_num_seqs", "4", 4),
        ("async_scheduling", "true", True),
        ("limit_mm_per_prompt", '{"image": 1}', {"image": 1}),
        ("scheduling_policy", "priority", "priority"),
        ("revision", "123", "123"),
        ("quantization_config", "anything", "anything"),
    ],
)
def test_text_from_the_environment_is_read_as_the_argument_s_type(name: str, given: str, taken: object) -> None:
    assert check_fields({name: given}, TYPES) == {name: taken}


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("max_num_seq", "4", "vllm.max_num_seq: vLLM has no such setting; did you mean max_num_seqs?"),
        ("unlike_any", "4", "vllm.unlike_any: vLLM has no such setting"),
        ("max_num_seqs", "many", "vllm.max_num_seqs: Input should be a valid integer"),
        ("scheduling_policy", "lifo", "vllm.scheduling_policy: Input should be 'fcfs' or 'priority'"),
    ],
)
def test_a_wrong_setting_is_named(name: str, given: str, said: str) -> None:
    with pytest.raises(BadEngineSettings) as caught:
        check_fields({name: given}, TYPES)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "vllm.model: must be set"),
        ({"model": "/no/such/model"}, "vllm.model: a file or folder that exists, got /no/such/model"),
        ({"model": "./no/model"}, "vllm.model: a file or folder that exists, got ./no/model"),
        ({"model": "../no/model"}, "vllm.model: a file or folder that exists, got ../no/model"),
    ],
)
def test_errors_are_reported_before_vllm_is_imported(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadEngineSettings) as caught:
        check_early(VllmSettings(**settings))
    assert str(caught.value) == said


@pytest.mark.parametrize("model", ["owner/name", "s3://bucket/model", __file__, str(Path(__file__).parent), "."])
def test_settings_that_may_be_valid_are_left_to_vllm(model: str) -> None:
    check_early(VllmSettings(model=model, enable_log_requests=True, max_num_seq=None))


def test_unset_fields_are_left_to_vllm() -> None:
    assert VllmSettings(model="m").engine_fields().keys() == {"model"}


def test_no_hub_is_asked_for_a_model_that_is_a_folder(tmp_path: Path) -> None:
    assert environment(VllmSettings(model=str(tmp_path)))["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in environment(VllmSettings(model="owner/name"))


def test_on_a_cpu_unbound_threads_are_as_many_as_the_usable_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.llm.vllm.args.usable_cores", lambda: 3)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    assert "OMP_NUM_THREADS" not in environment(VllmSettings(model="m")), "a GPU's vLLM has a number of its own"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    assert environment(VllmSettings(model="m"))["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-1")
    assert "OMP_NUM_THREADS" not in environment(VllmSettings(model="m")), "vLLM counts the cores that it binds to"


def test_vllms_processes_use_loopback_unless_they_are_on_several_machines() -> None:
    assert environment(VllmSettings(model="m"))["VLLM_HOST_IP"] == "127.0.0.1"
    assert "VLLM_HOST_IP" not in environment(VllmSettings(model="m", nnodes=2))


@pytest.mark.parametrize(
    ("speculation", "kept"),
    [(None, {"temperature": 0.6, "min_p": 0.05}), (SimpleNamespace(method="ngram"), {"temperature": 0.6})],
)
def test_a_models_own_min_p_is_left_out_with_speculation_because_the_engine_would_refuse_every_request(
    speculation: Any, kept: dict[str, float]
) -> None:
    model = SimpleNamespace(get_diff_sampling_param=lambda: {"temperature": 0.6, "min_p": 0.05})
    assert own_sampling(SimpleNamespace(model_config=model, speculative_config=speculation)) == kept
