"""Turns of the workers, as threads: each opens the file for itself, as processes do."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path

from tests.quiet import Turn


def test_who_waits_begins_when_all_others_wait_or_have_ended(tmp_path: Path) -> None:
    a, b, c = (Turn(tmp_path / "turns") for _ in range(3))
    with ThreadPoolExecutor() as threads:
        waiting: list[Future[None]] = [threads.submit(each.wait) for each in (a, b)]
        assert not wait_for(waiting, timeout=0.2).done
        c.end()
        assert len(wait_for(waiting, timeout=20).done) == 2
    a.wait()  # at once


def test_who_is_alone_begins_at_once(tmp_path: Path) -> None:
    Turn(tmp_path / "turns").wait()
    assert not list(tmp_path.iterdir())
