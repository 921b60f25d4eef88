"""Histograms of times reach as far as a budget may, 120 s; from 5 s on no bound is over twice the one before."""

from __future__ import annotations

from itertools import pairwise

import pytest
from prometheus_client import REGISTRY

import services.audio.metrics
import services.gateway.http.app  # noqa: F401  # with all that measures in a gateway

LONGEST_BUDGET_S = 120


@pytest.mark.parametrize(
    "name",
    [
        *("hedgerow_stage_seconds", "hedgerow_ttft_seconds", "hedgerow_usable_seconds", "hedgerow_total_seconds"),
        *("hedgerow_rpc_seconds", "hedgerow_http_seconds", "hedgerow_tool_seconds", "hedgerow_limiter_wait_seconds"),
        "hedgerow_audio_wait_seconds",
    ],
)
def test_a_long_time_is_told_to_a_half_of_it(name: str):
    *bounds, last = REGISTRY._names_to_collectors[name]._upper_bounds  # type: ignore[attr-defined]
    assert (bounds[-1], last) == (LONGEST_BUDGET_S, float("inf"))
    assert all(higher <= 2 * lower for lower, higher in pairwise(bounds) if lower >= 5)
