from __future__ import annotations

import logging

import pytest
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2

from services.runtime.errors import Exhausted, InvalidInput
from services.runtime.rpc.boundary import DOMAIN, to_status


def details(error: Exception, kind: type[Message]) -> Message:
    found = kind()
    assert any(detail.Unpack(found) for detail in to_status(error).details)
    return found


def test_bad_input_names_field_limit_and_value():
    status = to_status(InvalidInput("budget_ms", "at least 1", -1))
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert status.message == "budget_ms: at least 1, got -1"
    info = details(InvalidInput("budget_ms", "at least 1", -1), error_details_pb2.ErrorInfo)
    assert (info.domain, info.reason) == (DOMAIN, "INVALID_INPUT")
    assert dict(info.metadata) == {"field": "budget_ms", "limit": "at least 1", "value": "-1"}


def test_busy_says_when_to_come_back():
    retry = details(Exhausted("full", retry_delay_s=0.25), error_details_pb2.RetryInfo)
    assert retry.retry_delay.ToMilliseconds() == 250


def test_a_foreign_exception_keeps_its_secret(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.ERROR):
        status = to_status(RuntimeError("password=hunter2"))
    assert status.code == code_pb2.INTERNAL
    assert "hunter2" not in str(status)
    assert "hunter2" not in caplog.text
    correlation = status.message.rpartition(" ")[2]
    assert correlation in caplog.text
    assert "RuntimeError" in caplog.text
