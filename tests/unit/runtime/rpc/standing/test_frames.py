"""The bytes of frames, and the order in which they are sent."""

from __future__ import annotations

import string
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.rpc.standing import frames
from services.runtime.rpc.standing.frames import (
    CREDIT,
    DATA,
    END,
    OPEN,
    PART,
    PIECE_BYTES,
    BadFrame,
    Outgoing,
    credit,
    read_credit,
    read_frames,
    read_head,
    with_head,
)

KEYS = st.text(string.ascii_lowercase + "-", min_size=1)
PAIRS = st.one_of(
    st.tuples(KEYS.filter(lambda key: not key.endswith("-bin")), st.text()),
    st.tuples(KEYS.map(lambda key: f"{key}-bin"), st.binary()),
)


def sent(outgoing: Outgoing) -> list[tuple[int, int, bytes]]:
    """All frames, in the order in which they leave."""
    found = list[tuple[int, int, bytes]]()
    while message := outgoing.message():
        found += read_frames(message)
    return found


def replies(got: list[tuple[int, int, bytes]]) -> dict[int, list[bytes]]:
    """The whole replies in frames, by call."""
    found, pieces = dict[int, list[bytes]](), dict[int, bytes]()
    for kind, call, payload in got:
        pieces[call] = pieces.get(call, b"") + payload
        if kind == DATA:
            found.setdefault(call, []).append(pieces.pop(call))
    assert not pieces
    return found


def test_frames_that_are_ready_together_are_one_message() -> None:
    outgoing = Outgoing()
    outgoing.put(OPEN, 1, b"a")
    outgoing.put(OPEN, 2)
    outgoing.put(CREDIT, 1, credit(7))
    first = outgoing.message()
    assert list(read_frames(first)) == [(OPEN, 1, b"a"), (CREDIT, 1, credit(7)), (OPEN, 2, b"")]
    assert not outgoing.message()


@given(st.binary(max_size=64))
def test_any_bytes_are_frames_or_are_refused(raw: bytes) -> None:
    for read in (lambda: list(read_frames(raw)), lambda: read_head(raw), lambda: read_credit(raw)):
        with suppress(BadFrame):
            read()


@pytest.mark.parametrize("cut", [1, 8, 9, 11])
def test_a_message_that_ends_within_a_frame_is_refused(cut: int) -> None:
    outgoing = Outgoing()
    outgoing.put(DATA, 1, b"abc")
    with pytest.raises(BadFrame):
        list(read_frames(outgoing.message()[:cut]))


@given(st.lists(PAIRS), st.binary())
def test_a_head_keeps_metadata_text_and_bytes(metadata: list[tuple[str, str | bytes]], body: bytes) -> None:
    head = ["/hedgerow.llm.v1.LLMService/Generate", 250]
    assert read_head(with_head(head, metadata, body)) == (head, tuple(metadata), body)


@pytest.mark.parametrize("pairs", ['["a"]', '[["a", 1]]', "5", '[["x-bin", "%"]]', '[["a", "b", "c"]]', "{", ""])
def test_a_head_with_other_metadata_is_refused(pairs: str) -> None:
    raw = f'[{pairs}, "/path", null]'.encode()
    with pytest.raises(BadFrame):
        read_head(len(raw).to_bytes(4, "big") + raw)


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 1_000_000])
def test_a_reply_is_cut_and_whole_again(size: int) -> None:
    outgoing, reply = Outgoing(), bytes(range(256)) * (size // 256 + 1)
    outgoing.put_reply(5, reply[:size])
    got = sent(outgoing)
    assert replies(got) == {5: [reply[:size]]}
    assert [kind for kind, *_ in got] == [PART] * (len(got) - 1) + [DATA]
    assert all(len(payload) <= PIECE_BYTES for *_, payload in got)


def test_a_large_reply_does_not_hold_up_small_ones() -> None:
    outgoing = Outgoing()
    outgoing.put_reply(1, bytes(4_000_000))
    outgoing.message()
    for call in range(2, 40):
        outgoing.put_reply(call, b"token")
        outgoing.put(END, call)
    began = [call for kind, call, _ in read_frames(outgoing.message()) if kind == END]
    assert began == list(range(2, 40))


def test_a_small_reply_waits_for_one_piece_of_each_large_one() -> None:
    outgoing, small = Outgoing(), 99
    for call in range(32):
        outgoing.put_reply(call, bytes(4_000_000))
    outgoing.message()
    outgoing.put_reply(small, b"token")
    order = [call for _, call, _ in sent(outgoing)]
    assert set(Counter(order[: order.index(small)]).values()) == {1}


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3 * PIECE_BYTES)), max_size=12), st.integers(0, 12))
def test_replies_of_a_call_stay_in_order_and_messages_small(puts: list[tuple[int, int]], early: int) -> None:
    outgoing, expected, got = Outgoing(), dict[int, list[bytes]](), list[tuple[int, int, bytes]]()
    for number, (call, size) in enumerate(puts):
        reply = bytes([number]) * size
        expected.setdefault(call, []).append(reply)
        outgoing.put_reply(call, reply)
        if number == early:
            got += read_frames(outgoing.message())
    while message := outgoing.message():
        assert len(message) <= frames.WINDOW_BYTES + 2 * PIECE_BYTES
        got += read_frames(message)
    assert replies(got) == expected
    assert outgoing.size == 0


def test_what_is_dropped_is_not_sent() -> None:
    outgoing = Outgoing()
    outgoing.put_reply(1, bytes(100))
    outgoing.put_reply(2, b"b")
    outgoing.drop(1)
    outgoing.drop(3)
    assert sent(outgoing) == [(DATA, 2, b"b")]
    assert outgoing.size == 0
