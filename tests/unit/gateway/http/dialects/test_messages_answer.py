"""Answers in the words of Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.dialects.messages_answer import MessageWriter
from services.gateway.http.request_options import RequestOptions


def begun(index: int) -> pb.Event:
    return pb.Event(tool_call=chat_pb2.ToolCallDelta(index=index, id=f"call_{index}", name=f"tool_{index}"))


def more(index: int) -> pb.Event:
    return pb.Event(tool_call=chat_pb2.ToolCallDelta(index=index, arguments="{}"))


SAID = pb.Event(delta=pb.TextDelta(text="Hi."))


@pytest.mark.parametrize(
    ("events", "blocks"),
    [
        ([begun(0), more(0), begun(1), more(1)], "start 0, delta 0, stop 0, start 1, delta 1, stop 1"),
        ([begun(0), begun(1), more(0), more(1)], "start 0, stop 0, start 1, delta 0, delta 1, stop 1"),
        (
            [SAID, begun(0), more(0), SAID],
            "start 0, delta 0, stop 0, start 1, delta 1, stop 1, start 2, delta 2, stop 2",
        ),
    ],
)
def test_one_block_is_open_at_a_time(events: Sequence[pb.Event], blocks: str) -> None:
    writer = MessageWriter(RequestOptions(pb.GenerateRequest(), "auto", stream=True), "1")
    data = b"".join(map(writer.chunk, events)) + writer.end(pb.Final())
    written = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
    found = [f"{each['type'].removeprefix('content_block_')} {each['index']}" for each in written if "index" in each]
    assert ", ".join(found) == blocks
