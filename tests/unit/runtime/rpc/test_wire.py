"""Limits of gRPC messages are checked on the wire format, before protobuf makes objects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.runtime.errors import InvalidInput
from services.runtime.rpc import wire
from services.runtime.rpc.wire import Counted
from tests.examples import examples

ITEMS, VALUES = 20, 200
_MOST = {"messages": 10, "stop_token_ids": 12}


def counted(descriptor: Any = pb.GenerateRequest.DESCRIPTOR, values: int = VALUES) -> Counted:
    return Counted(descriptor, lambda field: _MOST.get(field.name, ITEMS), ITEMS, values)


def problem(raw: bytes, check: Counted | None = None) -> str:
    """The reason for which `raw` is refused; empty where it is not."""
    padded = raw + pb.GenerateRequest(model="x" * 500).SerializeToString()  # a short one is not looked at
    try:
        asyncio.run((check or counted()).check(padded))
    except InvalidInput as refused:
        return refused.message
    return ""


def many(times: int, **fields: Any) -> bytes:
    return pb.GenerateRequest(**fields).SerializeToString() * times


def parts(times: int) -> list[chat_pb2.Message]:
    return [chat_pb2.Message(role=1), chat_pb2.Message(parts=[chat_pb2.Part(text="a")] * times)]


@pytest.mark.parametrize(
    ("raw", "refused"),
    [
        (many(10, messages=[chat_pb2.Message()]), ""),
        (many(700_000, messages=[chat_pb2.Message()]), "messages: at most 10, got 11 or more"),
        (many(1, messages=parts(ITEMS)), ""),
        (many(1, messages=parts(ITEMS + 1)), "messages[1].parts: at most 20, got 21 or more"),
        (many(ITEMS + 1, tools=[chat_pb2.Tool(name="t")]), "tools: at most 20, got 21 or more"),
        (many(1, sampling=chat_pb2.Sampling(stop=["a"] * 21)), "sampling.stop: at most 20, got 21 or more"),
        (many(1, sampling=chat_pb2.Sampling(stop_token_ids=[300] * 12)), ""),
        (many(1, sampling=chat_pb2.Sampling(stop_token_ids=[300] * 13)), "sampling.stop_token_ids: at most 12, got 13"),
        (many(1, cache=pb.CachePolicy(allow=[1] * 21)), "cache.allow: at most 20, got 21"),
        (many(ITEMS + 1, tier=1), "tier: at most 20, got 21"),
        (many(ITEMS + 1, cache=pb.CachePolicy()), "cache: at most 20, got 21"),
        (b"\xf8\x7f\x01" * 21, "field 2047: at most 20, got 21"),
        (b"\x8a\x00\x00" * 11, "messages: at most 10, got 11"),  # the number of the field in more bytes than it needs
        (many(5, messages=parts(ITEMS)), "request: at most 200 fields, got 201 or more"),
        (b"\x0b\x0c", "hedgerow.gateway.v1.GenerateRequest: a well-formed message, got"),  # a group
        (b"\x0a\x05\x0a\x7f", "hedgerow.gateway.v1.GenerateRequest: a well-formed message, got"),
        (b"\x08" + b"\xff" * 11, "hedgerow.gateway.v1.GenerateRequest: a well-formed message, got"),
    ],
)
def test_a_message_of_too_many_elements_is_refused_by_the_name_of_the_field_and_the_limit(
    raw: bytes, refused: str
) -> None:
    refusal = problem(raw)
    assert refusal.startswith(refused) if refused else not refusal


def test_a_message_that_is_too_short_to_have_too_many_elements_is_not_looked_at() -> None:
    asyncio.run(counted().check(b"\x0b" * 2 * ITEMS))
    with pytest.raises(InvalidInput):
        asyncio.run(counted().check(b"\x0b" * (2 * ITEMS + 1)))


def test_a_recursive_message_has_16_levels_at_most() -> None:
    value = struct_pb2.Value(string_value="x" * 100)
    for _ in range(7):
        value = struct_pb2.Value(list_value=struct_pb2.ListValue(values=[value]))
    check = counted(struct_pb2.Value.DESCRIPTOR)
    asyncio.run(check.check(value.SerializeToString()))
    for _ in range(2):
        value = struct_pb2.Value(list_value=struct_pb2.ListValue(values=[value]))
    with pytest.raises(InvalidInput, match="values: at most 16 levels, got 17 or more"):
        asyncio.run(check.check(value.SerializeToString()))


async def test_all_but_the_first_fields_of_a_large_message_are_counted_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, stepped = set[int](), wire.Counted._strides

    def strides(check: Counted, raw: bytes) -> Iterator[None]:
        for _ in stepped(check, raw):
            threads.add(threading.get_ident())
            yield
        threads.add(threading.get_ident())

    monkeypatch.setattr(wire.Counted, "_strides", strides)
    check = Counted(pb.GenerateRequest.DESCRIPTOR, lambda _: 100_000, 10_000, 500_000)
    await check.check(many(1, messages=[chat_pb2.Message(content="a" * 100_000)]))
    assert threads == {threading.get_ident()}
    await check.check(many(40_000, messages=[chat_pb2.Message(content="abc")]))
    assert len(threads) == 2


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60))
def test_all_bytes_that_protobuf_reads_pass_the_check(raw: bytes) -> None:
    """Groups apart, which no message of ours has; and what is counted well may still have bad text in it."""
    check = Counted(pb.GenerateRequest.DESCRIPTOR, lambda _: 100, 100, 100)
    check._few_bytes = 0
    try:
        pb.GenerateRequest.FromString(raw)
    except DecodeError:
        return
    try:
        asyncio.run(check.check(raw))
    except InvalidInput:
        assert any(byte & 7 in (3, 4) for byte in raw), raw
