"""proto ↔ domain, nothing more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace

from hedgerow.audio.v1 import audio_pb2
from hedgerow.identities import GATEWAY
from services.audio import wire
from services.audio.admission import Admission, Stream
from services.audio.audio_buffer import AudioReader, Inbox
from services.audio.config import AudioSettings
from services.audio.engine import Recognizer
from services.audio.frames import open_frames
from services.audio.listener import Listener, ListenerSettings, StreamLanguage, TranscribeUtterance
from services.audio.metrics import AUDIO, LOAD
from services.audio.recordings import RecordingDecoder, RecordingTimeLimit, Transcription, gathered, in_time, not_idle
from services.audio.scheduler import TranscriptionScheduler
from services.audio.speech import RATE, Audio, Behind, Segment, Transcript, Word, written
from services.audio.validation import StreamWanted, stream_wanted, task_wanted
from services.runtime.errors import InvalidInput, NotSupported, Unavailable
from services.runtime.rpc.authorization import TENANT_HEADER
from services.runtime.rpc.boundary import Call

_PARTING_S = 0.5  # before a deadline or the end of the grace, calls are ended, so that what they have still arrives
_LEAVE_S = 60.0  # for a client to take its last answers
_WAITING_S = 5.0  # of audio between a stream's client and its listener, which keeps some itself


class AudioServicer:
    """Serves `hedgerow.audio.v1.AudioService` with one model."""

    def __init__(
        self,
        recognizer: Recognizer,
        languages: Collection[str],
        scheduler: TranscriptionScheduler,
        admission: Admission,
        decoder: RecordingDecoder,
        settings: AudioSettings,
        listening: Callable[[TranscribeUtterance, ListenerSettings], Listener] = Listener,
    ):
        self._recognizer, self._languages = recognizer, languages
        self._scheduler, self._admission, self._decoder = scheduler, admission, decoder
        self._settings, self._listening = settings, listening
        self._idle_timeout_s = settings.idle_timeout_ms / 1000
        self._time_limit = RecordingTimeLimit(settings.recording_base_ms / 1000, settings.recording_time_factor)
        self._inboxes: set[Inbox] = set()
        self._draining = self._stopping = False  # no more streams; no more of recordings
        LOAD.set_function(scheduler.load)

    async def Transcribe(
        self, requests: AsyncIterator[audio_pb2.TranscribeRequest], call: Call
    ) -> AsyncIterator[audio_pb2.TranscribeResponse]:
        first = await not_idle(requests, self._idle_timeout_s)
        if first is None:
            raise InvalidInput("data", "at least 1 byte", "none")
        options = first.options
        task = task_wanted(options, self._settings, self._languages)
        if task.translate and not self._recognizer.translates:
            raise NotSupported(f"translate: a model of several languages, got {self._recognizer.name}")
        longest_s = self._time_limit.base_s + self._time_limit.per_s * self._settings.max_duration_s
        with self._admission.recording(_tenant(call)) as member, _at_most(longest_s + _LEAVE_S):
            data = await in_time(self._upload(first.data, requests), call.deadline)
            recording = await in_time(self._decoder.decode(data), call.deadline)
            del data
            AUDIO.labels("recording").inc(recording.duration_s)
            yield audio_pb2.TranscribeResponse(
                recording=audio_pb2.Recording(
                    format=recording.format,
                    sample_rate_hz=recording.rate_hz,
                    channels=recording.channels,
                    duration_s=recording.duration_s,
                )
            )
            work = Transcription(self._recognizer, self._scheduler, member, recording, self._batch)
            texts: list[str] = []
            deadline, limit = self._time_limit.until(call.deadline, recording.duration_s)
            async with aclosing(work.segments(task, deadline, limit)) as segments:
                async for segment in segments:
                    texts.append(written(segment.words))
                    yield audio_pb2.TranscribeResponse(segment=wire.segment(segment, options.words))
                    if self._stopping:
                        raise Unavailable("the service is stopping")
            summary = audio_pb2.TranscribeSummary(
                text="".join(texts).strip(),
                audio_s=recording.duration_s,
                speech_s=work.speech_s,
                busy_s=member.busy_s,
                model=self._recognizer.name,
                language=work.language,
            )
            _describe(call, summary)
            yield audio_pb2.TranscribeResponse(summary=summary)

    async def TranscribeStream(
        self, requests: AsyncIterator[audio_pb2.TranscribeStreamRequest], call: Call
    ) -> AsyncIterator[audio_pb2.TranscribeStreamResponse]:
        first = await not_idle(requests, self._idle_timeout_s)
        wanted = stream_wanted(first, self._settings, self._languages)
        if self._draining:
            raise Unavailable("the service is stopping")
        with (
            self._inbox(call) as inbox,
            self._admission.stream(wanted.policy, _tenant(call), inbox.end) as stream,
            _at_most(self._settings.stream_s + _LEAVE_S),
        ):
            language = StreamLanguage(wanted.language)
            listener = self._listening(self._transcribe(stream, language), self._listener_settings(wanted))
            reader = asyncio.create_task(self._reader(wanted, inbox).run(first.audio if first else b"", requests))
            texts: list[str] = []
            try:
                async with aclosing(listener.listen(inbox)) as events:  # type: ignore[type-var]
                    async for event in events:
                        if isinstance(event, Behind):
                            self._admission.behind(stream, event.behind_s)
                        else:
                            self._admission.spoke(stream)
                        if isinstance(event, Segment):
                            event = replace(event, language=language.code)
                            texts.append(written(event.words))
                        yield wire.to_response(event)
            finally:
                reader.cancel()
                await asyncio.wait([reader])
                AUDIO.labels("stream").inc(inbox.taken_s)
            if inbox.error:
                raise inbox.error
            summary = audio_pb2.StreamSummary(
                text="".join(texts).strip(),
                audio_s=listener.audio_s,
                speech_s=listener.speech_s,
                busy_s=stream.member.busy_s,
                model=self._recognizer.name,
                language=language.code,
            )
            _describe(call, summary)
            yield audio_pb2.TranscribeStreamResponse(summary=summary)

    async def GetModel(self, request: audio_pb2.GetModelRequest, call: Call) -> audio_pb2.GetModelResponse:
        return audio_pb2.GetModelResponse(
            name=self._recognizer.name,
            device=self._recognizer.device,
            compute_type=self._recognizer.compute_type,
            streams=self._admission.streams,
            max_streams=self._admission.max_streams,
            load=self._scheduler.load(),
        )

    def drain(self) -> None:
        """End the streams: each hears what it has to the end, and says goodbye. Recordings have most of the time left
        to finish; then they end with an error that sends them elsewhere."""
        self._draining = True
        asyncio.get_running_loop().call_later(max(self._settings.drain_ms / 1000 - _PARTING_S, 0), self._stop)
        for inbox in self._inboxes:
            inbox.end()

    def _stop(self) -> None:
        self._stopping = True

    async def _upload(self, first: bytes, requests: AsyncIterator[audio_pb2.TranscribeRequest]) -> bytes:
        async def read() -> AsyncGenerator[bytes, None]:
            yield first
            while (request := await not_idle(requests, self._idle_timeout_s, _says_something)) is not None:
                if request.HasField("options"):
                    raise InvalidInput("options", "only in the first message", "in a later one")
                yield request.data

        async with aclosing(read()) as pieces:
            return await gathered(pieces, self._settings.max_file_bytes)

    @contextmanager
    def _inbox(self, call: Call) -> Iterator[Inbox]:
        """Ends a moment before the call does, and when the service drains."""
        inbox = Inbox(self._settings.max_ahead_ms / 1000, _WAITING_S)
        self._inboxes.add(inbox)
        remaining_s, loop = call.deadline.remaining(), asyncio.get_running_loop()
        timer = loop.call_later(max(remaining_s - _PARTING_S, 0), inbox.end) if remaining_s < float("inf") else None
        try:
            yield inbox
        finally:
            self._inboxes.discard(inbox)
            if timer:
                timer.cancel()

    def _reader(self, wanted: StreamWanted, inbox: Inbox) -> AudioReader:
        return AudioReader(open_frames(wanted.form), inbox, self._settings.stream_s, self._idle_timeout_s)

    def _listener_settings(self, wanted: StreamWanted) -> ListenerSettings:
        return ListenerSettings(
            policy=wanted.policy,
            pause_ms=wanted.pause_ms,
            window_s=self._settings.window_s,
            overlap_s=self._settings.overlap_s,
            step_ms=self._settings.step_ms,
            backlog_s=max(self._settings.max_behind_ms / 1000, 2 * self._settings.window_s),
        )

    def _batch(self) -> int:
        """How many windows of a recording are decoded in one piece: one while streams wait for their turn after it."""
        if self._admission.streams:
            return 1
        return self._settings.batch_windows or (8 if self._recognizer.device == "cuda" else 4)

    def _transcribe(self, stream: Stream, language: StreamLanguage) -> TranscribeUtterance:
        """The model, for one stream, in its turn."""

        async def transcribe(audio: Audio, paused: bool) -> tuple[Word, ...]:
            def work() -> tuple[Transcript, float]:
                began = time.monotonic()
                return self._recognizer.transcribe_utterance(audio, language.wanted), time.monotonic() - began

            found, took_s = await self._scheduler.run(stream.member, work, len(audio) / RATE)
            self._admission.worked(stream, took_s)
            language.observe(found, len(audio) / RATE)
            return found.words if paused or language.settled else ()

        return transcribe


def _says_something(request: audio_pb2.TranscribeRequest) -> bool:
    """An empty message is no sign of life."""
    return bool(request.data) or request.HasField("options")


def _tenant(call: Call) -> str:
    """The tenant of a stream or a recording. Where callers have identities, only gateways may name it."""
    return (call.header(TENANT_HEADER) or "") if call.peer in ("", GATEWAY) else ""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Cancel the call after that: a client that takes no answers would keep its slot for as long as it likes."""
    task = asyncio.current_task()
    timer = asyncio.get_running_loop().call_later(seconds, task.cancel) if task else None
    try:
        yield
    finally:
        if timer:
            timer.cancel()


def _describe(call: Call, summary: audio_pb2.TranscribeSummary | audio_pb2.StreamSummary) -> None:
    call.span.set_attribute("hedgerow.audio.audio_s", summary.audio_s)
    call.span.set_attribute("hedgerow.audio.speech_s", summary.speech_s)
    call.span.set_attribute("hedgerow.audio.busy_s", summary.busy_s)
