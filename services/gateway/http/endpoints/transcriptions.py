"""OpenAI's audio transcriptions, by the audio service. The form is read whole, within the limit of a body, and kept in
memory: containers have no disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from hedgerow.audio.v1 import audio_pb2
from services.gateway.admission.question import estimated_recording_tokens, recording_tokens
from services.gateway.http import sse
from services.gateway.http.endpoints.endpoint_admission import Admitted, EndpointAdmission
from services.gateway.http.endpoints.subtitles import subtitles
from services.gateway.http.errors import NotJson, NotOffered, with_http_names
from services.gateway.http.fields import Fields
from services.gateway.http.server.exchange import JSON, Exchange
from services.gateway.upstream.media import AudioBackend
from services.runtime.aside import aside, give_way, size_of
from services.runtime.errors import InvalidInput, ServiceError
from services.runtime.letters import UNSPACED
from services.runtime.strict_json import written

_MOST_FIELDS = 64
_PIECE_BYTES = 262_144  # of a form, which are parsed in 1 ms
_MOST_BOUNDARIES = 128  # the parser takes its time for each, though most of a million would be no boundaries
# The time of Python's decoder for Punycode grows with the square of a field's length.
_CHARSETS = (b"utf-8", b"utf8", b"us-ascii", b"iso-8859-1")
_TEXT = b"text/plain; charset=utf-8"
_FORMATS = {each: each for each in ("json", "text", "verbose_json", "srt", "vtt")}
TranscribeReplies = AsyncGenerator[audio_pb2.TranscribeResponse, None]


@dataclass(frozen=True, slots=True)
class MultipartForm:
    """`fields` are texts, and lists of texts for names that end in `[]`."""

    fields: Fields
    file: bytes


class _InMemory(MultiPartParser):
    spool_max_size = 2**62

    def on_headers_finished(self) -> None:
        """A part `file` is a file also without a name, and with one as `filename*` alone, which is not parsed."""
        part = self._current_part
        _, options = parse_options_header(part.content_disposition)
        if options.get(b"name") == b"file" and b"filename" not in options:
            part.content_disposition = (part.content_disposition or b"") + b'; filename=""'
        super().on_headers_finished()


async def read_form(exchange: Exchange) -> MultipartForm:
    """The form, with its `file`. Raises `NotJson` and `InvalidInput`."""
    kind = exchange.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        raise NotJson("content-type", "multipart/form-data", kind.partition(";")[0] or "none")
    _, options = parse_options_header(kind)
    if (charset := options.get(b"charset", _CHARSETS[0])).lower() not in _CHARSETS:
        raise InvalidInput("content-type", "a form in UTF-8", charset.decode("latin-1"))
    body = await exchange.body()
    try:
        async with aclosing(_pieces(exchange, body, b"\r\n--" + options.get(b"boundary", b""))) as pieces:
            parser = _InMemory(Headers({"content-type": kind}), pieces, max_files=1, max_fields=_MOST_FIELDS)
            form = await parser.parse()
    except MultiPartException as error:
        raise InvalidInput("body", "a form with one file", error.message) from None
    try:
        return await _read(form)
    finally:
        await form.close()


async def _pieces(exchange: Exchange, body: bytes, boundary: bytes) -> AsyncGenerator[bytes, None]:
    """The body in pieces, between which the event loop runs. Raises `InvalidInput` for too many boundaries."""
    boundaries = 0
    for begin in range(0, len(body), _PIECE_BYTES):
        if begin:
            await give_way(exchange.credential.tenant.name)
        piece = body[begin : begin + _PIECE_BYTES]
        boundaries += piece.count(boundary)
        if boundaries > _MOST_BOUNDARIES:
            raise InvalidInput("body", f"a form with at most {_MOST_FIELDS} fields and one file", "more")
        yield piece


async def _read(form: FormData) -> MultipartForm:
    given: dict[str, Any] = {}
    file: UploadFile | None = None
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            file = value if name == "file" else file
        elif name.endswith("[]"):
            given.setdefault(name.removesuffix("[]"), []).append(value)
        else:
            given[name] = value
    if file is None:
        raise InvalidInput("file", "a file", "none")
    return MultipartForm(Fields(given), await file.read())


class Transcriptions:
    """Serves `/v1/audio/transcriptions`, or with `translate` `/v1/audio/translations`. There is one model, whatever
    name it is asked for by."""

    def __init__(self, admission: EndpointAdmission, audio: AudioBackend | None, *, translate: bool = False):
        self._admission, self._audio, self._translate = admission, audio, translate

    async def __call__(self, exchange: Exchange) -> None:
        if self._audio is None:
            what = "translations" if self._translate else "transcriptions"
            raise NotOffered(f"{what}: need an audio service (HEDGEROW_GATEWAY_AUDIO_ADDRESS)")
        form = await read_form(exchange)
        streamed, how, options = _wanted(form.fields)
        options.translate = self._translate
        if streamed:
            exchange.broken = lambda failure: sse.event(failure.openai())
        async with (
            self._admission.admitted(
                exchange,
                exchange.reply.beat if streamed else None,
                self._admission.settings.transcription_budget_ms,
                tokens=estimated_recording_tokens(form.file),
            ) as admitted,
            aclosing(_transcribed(self._audio, form, options, admitted)) as replies,
        ):
            await (_stream(exchange, replies) if streamed else _whole(exchange, replies, how, options))


def _wanted(fields: Fields) -> tuple[bool, str, audio_pb2.TranscribeOptions]:
    """Whether to stream, the response's format, and the options. All values of a form are texts, booleans too."""
    fields.refuse("include", "chunking_strategy")
    streamed = fields.one_of("stream", {"true": True, "false": False, "True": True, "False": False}) or False
    how = fields.one_of("response_format", _FORMATS) or "json"
    granular = fields.texts("timestamp_granularities")
    for each in granular:
        if each not in ("word", "segment"):
            raise InvalidInput("timestamp_granularities", "word, segment", each)
    options = audio_pb2.TranscribeOptions(
        language=fields.text("language") or "", words="word" in granular, prompt=fields.text("prompt") or ""
    )
    return streamed, how, options


def _note_cost(reply: audio_pb2.TranscribeResponse, admitted: Admitted) -> None:
    """A client that leaves is charged at least for the segments that it received."""
    if reply.HasField("summary"):
        admitted.tokens = recording_tokens(reply.summary.audio_s)
    elif reply.HasField("segment"):
        admitted.tokens = max(admitted.tokens, recording_tokens(reply.segment.end_s))


async def _transcribed(
    audio: AudioBackend, form: MultipartForm, options: audio_pb2.TranscribeOptions, admitted: Admitted
) -> AsyncGenerator[audio_pb2.TranscribeResponse, None]:
    """The audio service's events, under its breaker."""
    permit = audio.breaker.enter(admitted.tenant)
    if permit is None:
        refusal = audio.breaker.refusal(admitted.tenant)
        admitted.failed(refusal)
        raise refusal
    answered = False
    try:
        replies = audio.client.recording(form.file, options, admitted.timeout_s, admitted.metadata)
        async with aclosing(replies) as open_replies:
            async for reply in open_replies:
                answered |= reply.HasField("segment")
                _note_cost(reply, admitted)
                yield reply
        permit.succeeded(None)  # the time that it took is the recording's and the client's
    except ServiceError as error:
        permit.ended(error)
        if not answered:
            admitted.failed(error)
        raise with_http_names(error) from None
    finally:
        permit.withdrawn()  # unless it has reported


async def _stream(exchange: Exchange, replies: TranscribeReplies) -> None:
    """A delta for each segment."""
    reply, said = exchange.reply, ""
    async for event in replies:
        if event.HasField("segment"):
            apart = said and event.segment.language not in UNSPACED
            delta = f"{' ' if apart else ''}{event.segment.text}"
            said += delta
            await reply.begin()
            await reply.write(sse.event({"type": "transcript.text.delta", "delta": delta}))
    await reply.begin()
    await reply.write(sse.event({"type": "transcript.text.done", "text": said}) + sse.DONE, last=True)


async def _whole(
    exchange: Exchange, replies: TranscribeReplies, how: str, options: audio_pb2.TranscribeOptions
) -> None:
    segments, summary = list[audio_pb2.Segment](), audio_pb2.TranscribeSummary()
    async for event in replies:
        if event.HasField("segment"):
            segments.append(event.segment)
        elif event.HasField("summary"):
            summary = event.summary
    if how == "text":
        await exchange.reply.whole(200, summary.text.encode() + b"\n", kind=_TEXT)
        return
    size = size_of(len(segments) + sum(len(segment.words) for segment in segments))

    def file() -> bytes:
        return subtitles(segments, how).encode()

    def body() -> bytes:
        return written(_transcript(segments, summary, options, verbose=how == "verbose_json"), size)

    write, kind = (file, _TEXT) if how in ("srt", "vtt") else (body, JSON)
    await exchange.reply.whole(200, await aside(exchange.credential.tenant.name, size, write), kind=kind)


def _transcript(
    segments: Sequence[audio_pb2.Segment],
    summary: audio_pb2.TranscribeSummary,
    options: audio_pb2.TranscribeOptions,
    *,
    verbose: bool,
) -> dict[str, Any]:
    body: dict[str, Any] = {"text": summary.text, "usage": {"type": "duration", "seconds": summary.audio_s}}
    if verbose:
        spoken = summary.language or options.language
        body["task"], body["language"] = ("translate", "english") if options.translate else ("transcribe", spoken)
        body["duration"] = summary.audio_s
        body["segments"] = [_segment(segment) for segment in segments]
        if options.words:
            body["words"] = [
                {"word": word.text, "start": word.start_s, "end": word.end_s}
                for segment in segments
                for word in segment.words
            ]
    return body


def _segment(segment: audio_pb2.Segment) -> dict[str, Any]:
    """Confidences that the audio service does not measure have their best value."""
    return {
        "id": segment.index,
        "seek": 0,
        "start": segment.start_s,
        "end": segment.end_s,
        "text": segment.text,
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": 0.0,
        "compression_ratio": 1.0,
        "no_speech_prob": 0.0,
    }
