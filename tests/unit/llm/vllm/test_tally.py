"""How many requests run and wait, when the scheduler's last word may be old."""

from __future__ import annotations

import pytest

from services.llm.engine import Load
from services.llm.vllm.tally import combine


@pytest.mark.parametrize(
    ("reported_running", "unfinished", "load"),
    [
        (0, 0, Load(0, 0)),
        (2, 5, Load(2, 3)),
        (1, 0, Load(0, 0)),  # aborted, and the scheduler has said nothing since
        (0, 1, Load(0, 1)),  # added, and the scheduler has not run since
    ],
)
def test_every_unfinished_request_runs_or_waits(reported_running: int, unfinished: int, load: Load) -> None:
    assert combine(reported_running, unfinished) == load
