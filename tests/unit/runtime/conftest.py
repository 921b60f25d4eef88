"""Fixtures of several folders: an environment without settings, and the log."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator

import pytest

from services.runtime.process.logs import setup_logging

Log = Callable[[str], io.StringIO]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without our variables."""
    for name in os.environ:
        if name.startswith("HEDGEROW_"):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def log() -> Iterator[Log]:
    """A function that sets up logging at a level, and returns the stream that it is written to."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def set_up(level: str) -> io.StringIO:
        setup_logging("service", level, stream := io.StringIO())
        return stream

    yield set_up
    root.handlers[:] = handlers
    root.setLevel(level)
