"""How busy models are, read from a gateway's metrics."""

from __future__ import annotations

import pytest

from hedgerow_cli.model_load import ModelLoad, loads_in
from hedgerow_cli.scrape import read

METRICS = """\
# HELP hedgerow_limit Calls that may be in flight at once.
hedgerow_limit{limiter="llm fast"} 200.0
hedgerow_limit{limiter="tools collections"} 16.0
hedgerow_in_flight{limiter="llm fast"} 3.0
hedgerow_waiting{limiter="llm fast"} 1.0
hedgerow_limiter_wait_seconds_count{limiter="llm fast"} 9.0
hedgerow_breaker_open{backend="fast@127.0.0.1:1"} 1.0
hedgerow_breaker_open{backend="fast@127.0.0.1:2"} 0.0
hedgerow_breaker_open{backend="slow@127.0.0.1:3"} 0.5
hedgerow_breaker_open{backend="cache"} 1.0
"""


def test_figures_are_those_of_models() -> None:
    assert loads_in(read(METRICS)) == {
        "fast": ModelLoad(in_flight=3, waiting=1, limit=200, open=[True, False]),
        "slow": ModelLoad(open=[True]),
    }


def test_a_model_has_a_problem_where_calls_are_kept_from_all_of_its_replicas() -> None:
    assert {name: bool(load.problem) for name, load in loads_in(read(METRICS)).items()} == {"fast": False, "slow": True}


def test_other_texts_say_nothing() -> None:
    assert read("") == []
    with pytest.raises(ValueError, match="html"):
        read("<html>hedgerow_limit</html>\n")
