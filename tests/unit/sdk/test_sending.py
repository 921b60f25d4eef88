"""Requests on their way from the caller's threads to gRPC's."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from hedgerow._sending import Outbox


def started(target: object, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_an_outbox_delivers_in_order_and_then_ends() -> None:
    outbox = Outbox()
    feeding = started(outbox.fill, range(100), None)
    assert list(outbox) == list(range(100))
    feeding.join(5)
    assert not outbox.put(1)


def test_live_audio_does_not_pile_up() -> None:
    outbox, taken = Outbox(), []

    def count() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    feeding = started(outbox.fill, count(), None)
    assert next(outbox) == 0
    outbox.close()
    feeding.join(5)
    assert not feeding.is_alive()
    assert len(taken) <= 7  # four that wait, one that is put in, one that was taken, one read ahead


def test_an_urgent_message_needs_no_capacity() -> None:
    outbox = Outbox()
    for number in range(4):
        outbox.put(number)
    assert outbox.put("now", at_once=True)
    assert [next(outbox) for _ in range(5)] == [0, 1, 2, 3, "now"]


def test_closing_frees_all_waiters() -> None:
    outbox, results = Outbox(), []
    taking = started(lambda: results.extend(outbox))
    outbox.close()
    taking.join(5)
    assert (results, taking.is_alive(), outbox.put(1)) == ([], False, False)


def test_an_error_of_the_callers_ends_the_call_and_is_kept() -> None:
    outbox, ended = Outbox(), threading.Event()

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    outbox.fill(broken(), ended.set)
    assert ended.is_set()
    assert isinstance(outbox.problem, OSError)
