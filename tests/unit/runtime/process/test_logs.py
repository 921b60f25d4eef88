"""Exceptions in logs, without callers' content."""

from __future__ import annotations

import logging

from services.runtime.process.logs import whereabouts
from tests.unit.runtime.conftest import Log

_SECRET = "secret {}"  # filled in when it is raised: the lines of source that a log shows do not have it


def fail() -> None:
    try:
        try:
            raise KeyError(_SECRET.format("one"))
        except KeyError as error:
            raise ValueError(_SECRET.format("two")) from error
    except ValueError:
        raise ExceptionGroup(_SECRET.format("three"), [OSError(_SECRET.format("four"))])  # noqa: B904  # so that it has a context


def test_an_exception_is_logged_by_class_and_line_without_its_text(log: Log) -> None:
    stream = log("INFO")
    try:
        fail()
    except ExceptionGroup:
        logging.getLogger("x").exception("failed with %d", 3)
    written = stream.getvalue()
    for word in ("failed with 3", "in fail", "test_logs.py", "ExceptionGroup", "OSError", "ValueError", "KeyError"):
        assert word in written
    assert "secret o" not in written
    assert "secret t" not in written
    assert "secret f" not in written


def test_a_text_of_others_writes_no_line_of_its_own_and_nothing_that_a_terminal_obeys(log: Log) -> None:
    stream = log("INFO")
    logging.getLogger("x").info(
        "connected to %s", "a\n2026-11-26 07:24:45,576 INFO gateway b [-]\tserving\r\x1b[2J\x9b"
    )
    assert stream.getvalue().endswith("connected to a\n  2026-11-26 07:24:45,576 INFO gateway b [-]\tserving[2J\n")


def test_at_debug_the_texts_are_there(log: Log) -> None:
    stream = log("DEBUG")
    try:
        raise ValueError(f"secret {1 + 1}")
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert "ValueError: secret 2" in stream.getvalue()


def test_a_cyclic_chain_of_causes_is_logged_up_to_a_limit() -> None:
    error = ValueError()
    error.__cause__ = error
    assert whereabouts(error).count("ValueError") == 10
    assert whereabouts(None) == ""


def test_at_debug_secrets_and_personal_data_are_hidden_in_the_texts(log: Log) -> None:
    stream = log("DEBUG")
    try:
        raise ValueError("who is {}?".format("anna" + "@example.com"))
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert "who is [email 1]?" in stream.getvalue()
    assert "anna@example.com" not in stream.getvalue()
