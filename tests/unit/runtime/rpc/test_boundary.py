from __future__ import annotations

import base64
import logging
from typing import TypeVar

import pytest
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from services.gateway.errors import ModelUnknown
from services.runtime.errors import Exhausted, InvalidInput, ServiceError
from services.runtime.rpc.boundary import DOMAIN, to_status
from services.runtime.rpc.decode_errors import parser

M = TypeVar("M", bound=Message)


def details(error: Exception, kind: type[M]) -> M:
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


@pytest.mark.parametrize(
    "error", [InvalidInput("x" * 9_000, "y" * 9_000, "z" * 9_000), ModelUnknown("m", "n, " * 9_000)]
)
def test_names_that_are_callers_or_many_leave_room_in_the_trailers(error: ServiceError):
    status = to_status(error)
    assert error.metadata["limit"].endswith(" characters)")
    assert len(status.message) + len(base64.b64encode(status.SerializeToString())) < 6_000, "gRPC refuses 8 KiB"


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


parse = parser(gateway_pb2.GenerateRequest)


def request(content: str) -> bytes:
    messages = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text) for text in ("fine", content)]
    return gateway_pb2.GenerateRequest(messages=messages).SerializeToString()


def test_invalid_utf8_is_refused_with_the_path_of_the_field():
    with pytest.raises(InvalidInput, match=r"messages\[1\]\.content: valid UTF-8"):
        parse(request("MARK").replace(b"MARK", b"\xff\xfe\xfd\xfc"))


def test_a_long_message_is_not_looked_through_for_the_field() -> None:
    with pytest.raises(InvalidInput, match=r"^hedgerow.gateway.v1.GenerateRequest: a well-formed message with valid"):
        parse(request("x" * 32_768 + "MARK").replace(b"MARK", b"\xff\xfe\xfd\xfc"))


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x7f", request("cut")[:-2], b"\x00" * 8])
def test_a_malformed_message_is_refused(raw: bytes):
    with pytest.raises(InvalidInput, match="a well-formed message"):
        parse(raw)
