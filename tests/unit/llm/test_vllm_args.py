"""How a setting becomes one of vLLM's arguments, with a stand-in for the list of those."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from services.llm.config import VllmSettings
from services.llm.errors import BadEngineSettings
from services.llm.vllm_args import check_fields, environment

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
        ("max_num_seqs", "many", "vllm.max_num_seqs: Input should be a valid integer"),
        ("scheduling_policy", "lifo", "vllm.scheduling_policy: Input should be 'fcfs' or 'priority'"),
    ],
)
def test_a_wrong_setting_is_named(name: str, given: str, said: str) -> None:
    with pytest.raises(BadEngineSettings) as caught:
        check_fields({name: given}, TYPES)
    assert str(caught.value).startswith(said)


def test_what_is_not_set_is_left_to_vllm() -> None:
    assert VllmSettings(model="m").engine_fields().keys() == {
        "model",
        "dtype",
        "gpu_memory_utilization",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "enforce_eager",
        "enable_prefix_caching",
    }


def test_no_hub_is_asked_for_a_model_that_is_a_folder(tmp_path: Path) -> None:
    assert environment(VllmSettings(model=str(tmp_path)))["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in environment(VllmSettings(model="owner/name"))


def test_its_own_processes_are_found_here_unless_they_are_on_several_machines() -> None:
    assert environment(VllmSettings(model="m"))["VLLM_HOST_IP"] == "127.0.0.1"
    assert "VLLM_HOST_IP" not in environment(VllmSettings(model="m", nnodes=2))
