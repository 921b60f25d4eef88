"""One stream: what is asked of the model, and what comes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import numpy as np
import pytest

from services.audio.listener import Listener, ListenerSettings, _stop
from services.audio.speech import RATE, Audio, Behind, Partial, Segment, Started, StreamEvent, Word
from tests.clock import PausedClock
from tests.unit.audio.voices import question, silence, texts

PACKET = 960
LOCAL, WINDOWS = ListenerSettings(), ListenerSettings(policy="windows")


class Model:
    """Transcribes one numbered word for each quarter of a second. While it is held it does not answer."""

    def __init__(self) -> None:
        self.lengths: list[float] = []
        self.at_once = self.most_at_once = 0
        self.going = asyncio.Event()
        self.going.set()

    async def transcribe_utterance(self, audio: Audio, paused: bool) -> list[Word]:
        self.lengths.append(len(audio) / RATE)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.going.wait()
        self.at_once -= 1
        return [Word(f"w{at}", at / 4, (at + 1) / 4) for at in range(int(len(audio) / RATE * 4))]


async def packets(*parts: Audio, size: int = PACKET) -> AsyncIterator[Audio]:
    """The audio, no faster than the listener takes it."""
    audio = np.concatenate(parts)
    for start in range(0, len(audio), size):
        yield audio[start : start + size]
        for _ in range(8):
            await asyncio.sleep(0)


async def events_of(listener: Listener, audio: AsyncIterator[Audio]) -> list[StreamEvent]:
    async with aclosing(listener.listen(audio)) as events:  # type: ignore[type-var]
        return [event async for event in events]


def of(kind: type[StreamEvent], events: Sequence[StreamEvent]) -> list[StreamEvent]:
    return [event for event in events if isinstance(event, kind)]


async def test_silence_is_never_given_to_the_model() -> None:
    model = Model()
    listener = Listener(model.transcribe_utterance, LOCAL)
    assert await events_of(listener, packets(silence(5))) == []
    assert model.lengths == []
    assert (listener.audio_s, listener.speech_s) == (5, 0)


@pytest.mark.parametrize("settings", [LOCAL, WINDOWS])
async def test_a_stretch_of_speech_starts_and_ends_in_one_segment(settings: ListenerSettings) -> None:
    events = await events_of(
        Listener(Model().transcribe_utterance, settings), packets(silence(1), question(), silence(1))
    )
    assert isinstance(events[0], Started)
    assert 1.0 < events[0].at_s < 1.5
    assert isinstance(events[-1], Segment)
    assert len(of(Segment, events)) == 1


@pytest.mark.parametrize("settings", [LOCAL, WINDOWS])
async def test_the_segment_closes_at_the_pause_and_not_a_step_later(settings: ListenerSettings) -> None:
    listener = Listener(Model().transcribe_utterance, settings)
    async with aclosing(listener.listen(packets(question(), silence(3)))) as events:  # type: ignore[type-var]
        (closed,) = [listener.audio_s async for event in events if isinstance(event, Segment)]
    assert closed <= len(question()) / RATE + 0.5 + 0.1


async def test_two_stretches_are_two_segments_with_numbers_and_times_in_order() -> None:
    audio = packets(question(), silence(1), question(), silence(1))
    first, second = of(Segment, await events_of(Listener(Model().transcribe_utterance, LOCAL), audio))
    assert isinstance(first, Segment)
    assert isinstance(second, Segment)
    assert (first.index, second.index) == (0, 1)
    assert first.end_s < second.start_s


async def test_partials_show_more_and_more_and_what_is_confirmed_stays() -> None:
    events = await events_of(Listener(Model().transcribe_utterance, LOCAL), packets(question(), silence(1)))
    confirmed: list[str] = []
    for event in events:
        if isinstance(event, Partial):
            now = texts(event.words[: event.confirmed])
            assert now[: len(confirmed)] == confirmed
            confirmed = now
        elif isinstance(event, Segment):
            assert texts(event.words)[: len(confirmed)] == confirmed
    assert confirmed


async def test_words_that_were_shown_and_turn_out_to_be_none_are_taken_back() -> None:
    async def transcribe(audio: Audio, paused: bool) -> list[Word]:
        return [] if paused else [Word(f"heard{len(audio)}", 0.2, 0.6)]

    events = await events_of(Listener(transcribe, LOCAL), packets(question()[: 3 * RATE // 2]))
    assert of(Segment, events) == []
    *shown, last = [each.words for each in events if isinstance(each, Partial)]
    assert all(shown)
    assert last == ()


async def test_speech_that_goes_on_to_the_end_of_the_audio_is_transcribed() -> None:
    events = await events_of(Listener(Model().transcribe_utterance, LOCAL), packets(question()[: RATE * 3 // 2]))
    assert isinstance(events[-1], Segment)


async def test_the_listener_reads_while_the_model_works_and_then_takes_all_audio() -> None:
    model, taken = Model(), 0
    model.going.clear()

    async def audio() -> AsyncIterator[Audio]:
        nonlocal taken
        async for packet in packets(question(), question(), silence(1)):
            taken += len(packet)
            yield packet
        model.going.set()

    await events_of(Listener(model.transcribe_utterance, ListenerSettings(pause_ms=5_000)), audio())
    assert taken == 2 * len(question()) + RATE
    assert model.most_at_once == 1
    first, rest = model.lengths
    assert 0.8 <= first < 1.0  # the first run begins as soon as there is enough audio
    assert rest > 1.5 * len(question()) / RATE


async def test_the_runs_of_the_model_depend_on_the_audio_alone() -> None:
    asked = []
    for _ in range(2):
        model = Model()
        await events_of(
            Listener(model.transcribe_utterance, LOCAL), packets(question(), silence(0.3), question(), silence(1))
        )
        asked.append(model.lengths)
    assert asked[0] == asked[1]


async def test_the_listener_reports_once_a_second_that_it_is_behind() -> None:
    model, clock = Model(), PausedClock()
    model.going.clear()

    async def audio() -> AsyncIterator[Audio]:
        async for packet in packets(*[question()] * 3, silence(1), size=RATE // 10):
            clock.advance(0.1)
            yield packet
        model.going.set()

    events = await events_of(Listener(model.transcribe_utterance, LOCAL, clock), audio())
    said = of(Behind, events)
    assert len(said) in (len(question()) * 3 // RATE - 1, len(question()) * 3 // RATE, len(question()) * 3 // RATE + 1)
    assert all(isinstance(each, Behind) and each.behind_s > 1 for each in said)


async def test_reading_waits_when_too_much_audio_waits() -> None:
    model, taken = Model(), 0
    model.going.clear()

    async def audio() -> AsyncIterator[Audio]:
        nonlocal taken
        async for packet in packets(*[question()] * 5):
            taken += len(packet)
            yield packet

    listener = Listener(model.transcribe_utterance, ListenerSettings(backlog_s=4.0))
    task = asyncio.create_task(events_of(listener, audio()))
    while listener.audio_s < 4.0:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert taken <= 4.5 * RATE
    model.going.set()
    await task
    assert taken == 5 * len(question())


@pytest.mark.parametrize(("slow_s", "backlog_s"), [(15, 30), (20, 120), (9, 10)])
async def test_a_stream_goes_on_after_one_run_that_took_very_long(slow_s: float, backlog_s: float) -> None:
    model, clock, speech = Model(), PausedClock(), question()
    loud = np.nonzero(np.abs(speech) > 0.02)[0]
    speech = speech[loud[0] : loud[-1]]  # on and on, without a pause

    async def transcribe(audio: Audio, paused: bool) -> list[Word]:
        clock.advance(slow_s if not model.lengths else 0.1)
        return await model.transcribe_utterance(audio, paused)

    listener = Listener(transcribe, ListenerSettings(backlog_s=backlog_s), clock)
    async with asyncio.timeout(30):  # a stream that waits for ever
        await events_of(listener, packets(*[speech] * 40))
    assert listener.audio_s == len(speech) * 40 / RATE
    assert len(model.lengths) > 20


async def test_a_segment_that_goes_on_and_on_is_closed_where_it_is_confirmed() -> None:
    settings = ListenerSettings(pause_ms=5_000, longest_s=4.0)
    segments = of(
        Segment, await events_of(Listener(Model().transcribe_utterance, settings), packets(*[question()] * 8))
    )
    assert len(segments) > 2


async def test_an_exception_of_the_audio_is_raised_and_no_task_is_left() -> None:
    async def audio() -> AsyncIterator[Audio]:
        async for packet in packets(question()):
            yield packet
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await events_of(Listener(Model().transcribe_utterance, LOCAL), audio())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_exception_of_the_model_is_raised() -> None:
    async def transcribe(audio: Audio, paused: bool) -> list[Word]:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        await events_of(Listener(transcribe, LOCAL), packets(question(), silence(1)))
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_the_listener_stops_the_reading_and_the_model() -> None:
    model = Model()
    model.going.clear()
    async with aclosing(Listener(model.transcribe_utterance, LOCAL).listen(packets(question(), silence(1)))) as events:  # type: ignore[type-var]
        async for _ in events:
            break
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_caller_that_is_cancelled_while_a_run_winds_up_stays_cancelled() -> None:
    winding_up = asyncio.Event()

    async def run() -> list[Word]:
        try:
            await asyncio.Event().wait()
        finally:
            winding_up.set()
            await asyncio.sleep(0)
        return []

    caller = asyncio.create_task(_stop(running := asyncio.create_task(run())))
    await winding_up.wait()
    caller.cancel()
    await asyncio.wait([caller, running])
    assert caller.cancelled()
