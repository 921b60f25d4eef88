"""A process before it serves."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Coroutine

import grpc
import pytest
import uvloop

from services.runtime.process.lifetime import allow_many_connections, to_the_end

_NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [
        (256, 2_000, 2_000),
        (1_024, 1_048_576, 65_536),
        (256, _NO_LIMIT, 65_536),
        (300, 300, 300),
        (100_000, 1_048_576, 100_000),
        (_NO_LIMIT, _NO_LIMIT, _NO_LIMIT),
    ],
)
def test_a_process_may_open_as_many_connections_as_the_hard_limit_allows(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, then: int
) -> None:
    limits = {resource.RLIMIT_NOFILE: (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    allow_many_connections()
    assert limits[resource.RLIMIT_NOFILE] == (then, hard)


def test_threads_of_a_process_take_short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serving() -> bool:
        return True

    def run(work: Coroutine[None, None, None]) -> None:
        work.close()
        seen.append(sys.getswitchinterval())

    seen, usual_s = list[float](), sys.getswitchinterval()
    monkeypatch.setattr(uvloop, "run", run)
    monkeypatch.setattr(grpc.aio, "init_grpc_aio", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda number, action: None)
    work = serving()
    try:
        to_the_end(work)
    finally:
        sys.setswitchinterval(usual_s)
        work.close()
    assert seen == [pytest.approx(0.0005)]
