"""What a log tells of an exception, and what it keeps."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from services.runtime.process.logs import setup_logging, whereabouts

Log = Callable[[str], io.StringIO]


@pytest.fixture
def log() -> Iterator[Log]:
    """Sets a log up and gives what is written to it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def set_up(level: str) -> io.StringIO:
        setup_logging("service", level, stream := io.StringIO())
        return stream

    yield set_up
    root.handlers[:] = handlers
    root.setLevel(level)


def fail() -> None:
    try:
        try:
            raise KeyError("secret one")
        except KeyError as error:
            raise ValueError("secret two") from error
    except ValueError:
        raise ExceptionGroup("secret three", [OSError("secret four")])  # noqa: B904  # so that it has a context


def test_an_exception_is_told_by_class_and_place_and_not_by_its_text(log: Log) -> None:
    stream = log("INFO")
    try:
        fail()
    except ExceptionGroup:
        logging.getLogger("x").exception("failed with %d", 3)
    written = stream.getvalue()
    for word in ("failed with 3", "in fail", "test_logs.py", "ExceptionGroup", "OSError", "ValueError", "KeyError"):
        assert word in written
    for number in ("one", "three", "four"):
        assert f'"secret {number}"' in written or f"'secret {number}'" not in written  # the source line, at most


def test_at_debug_the_texts_are_there(log: Log) -> None:
    stream = log("DEBUG")
    try:
        raise ValueError(f"secret {1 + 1}")
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert "ValueError: secret 2" in stream.getvalue()


def test_what_has_no_end_is_told_to_an_end() -> None:
    error = ValueError()
    error.__cause__ = error
    assert whereabouts(error).count("ValueError") == 10
    assert whereabouts(None) == ""


@pytest.mark.parametrize(
    "end",
    [
        "raise ValueError(secret)",
        "import threading; t = threading.Thread(target=lambda: int(secret)); t.start(); t.join()",
        "a = type('A', (), {'__del__': lambda self: int(secret)})(); del a",
    ],
)
def test_what_ends_a_process_or_a_thread_is_told_in_the_same_way(end: str) -> None:
    code = (
        "from services.runtime.process.logs import *\n"
        "setup_logging('service', 'INFO'); log_what_ends_us()\n"
        f"secret = 'hunter' + '2'\n{end}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "CRITICAL service services [-] nobody took an exception" in done.stderr
    assert "ValueError" in done.stderr
    assert "hunter2" not in done.stderr
