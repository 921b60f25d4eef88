"""The sampling parameters of a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from services.llm.vllm.params import own_sampling


@pytest.mark.parametrize(
    ("speculation", "kept"),
    [(None, {"temperature": 0.6, "min_p": 0.05}), (SimpleNamespace(method="ngram"), {"temperature": 0.6})],
)
def test_a_models_own_min_p_is_left_out_with_speculation_because_the_engine_would_refuse_every_request(
    speculation: Any, kept: dict[str, float]
) -> None:
    model = SimpleNamespace(get_diff_sampling_param=lambda: {"temperature": 0.6, "min_p": 0.05})
    assert own_sampling(SimpleNamespace(model_config=model, speculative_config=speculation)) == kept
