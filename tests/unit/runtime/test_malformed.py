from __future__ import annotations

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from services.runtime.errors import InvalidInput
from services.runtime.rpc.boundary import parser

parse = parser(gateway_pb2.GenerateRequest)


def request(content: str) -> bytes:
    messages = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text) for text in ("fine", content)]
    return gateway_pb2.GenerateRequest(messages=messages).SerializeToString()


def test_a_well_formed_message_is_parsed():
    assert parse(request("good")).messages[1].content == "good"


def test_invalid_utf8_is_refused_with_the_path_of_the_field():
    with pytest.raises(InvalidInput, match=r"messages\[1\]\.content: valid UTF-8"):
        parse(request("MARK").replace(b"MARK", b"\xff\xfe\xfd\xfc"))


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x7f", request("cut")[:-2], b"\x00" * 8])
def test_what_is_not_a_message_is_refused(raw: bytes):
    with pytest.raises(InvalidInput, match="a well-formed message"):
        parse(raw)
