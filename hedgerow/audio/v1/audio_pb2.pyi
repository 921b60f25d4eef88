from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    ENCODING_PCM_S16LE: _ClassVar[Encoding]
    ENCODING_PCM_F32LE: _ClassVar[Encoding]
    ENCODING_OPUS: _ClassVar[Encoding]

class Policy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POLICY_UNSPECIFIED: _ClassVar[Policy]
    POLICY_WINDOWS: _ClassVar[Policy]
    POLICY_LOCAL_AGREEMENT: _ClassVar[Policy]
ENCODING_UNSPECIFIED: Encoding
ENCODING_PCM_S16LE: Encoding
ENCODING_PCM_F32LE: Encoding
ENCODING_OPUS: Encoding
POLICY_UNSPECIFIED: Policy
POLICY_WINDOWS: Policy
POLICY_LOCAL_AGREEMENT: Policy

class TranscribeRequest(_message.Message):
    __slots__ = ("options", "data")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    options: TranscribeOptions
    data: bytes
    def __init__(self, options: _Optional[_Union[TranscribeOptions, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class TranscribeOptions(_message.Message):
    __slots__ = ("language", "words", "translate", "prompt")
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    TRANSLATE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    language: str
    words: bool
    translate: bool
    prompt: str
    def __init__(self, language: _Optional[str] = ..., words: _Optional[bool] = ..., translate: _Optional[bool] = ..., prompt: _Optional[str] = ...) -> None: ...

class TranscribeResponse(_message.Message):
    __slots__ = ("recording", "segment", "summary")
    RECORDING_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    recording: Recording
    segment: Segment
    summary: TranscribeSummary
    def __init__(self, recording: _Optional[_Union[Recording, _Mapping]] = ..., segment: _Optional[_Union[Segment, _Mapping]] = ..., summary: _Optional[_Union[TranscribeSummary, _Mapping]] = ...) -> None: ...

class Recording(_message.Message):
    __slots__ = ("format", "sample_rate_hz", "channels", "duration_s")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    format: str
    sample_rate_hz: int
    channels: int
    duration_s: float
    def __init__(self, format: _Optional[str] = ..., sample_rate_hz: _Optional[int] = ..., channels: _Optional[int] = ..., duration_s: _Optional[float] = ...) -> None: ...

class Word(_message.Message):
    __slots__ = ("text", "start_s", "end_s", "probability", "stability")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    STABILITY_FIELD_NUMBER: _ClassVar[int]
    text: str
    start_s: float
    end_s: float
    probability: float
    stability: float
    def __init__(self, text: _Optional[str] = ..., start_s: _Optional[float] = ..., end_s: _Optional[float] = ..., probability: _Optional[float] = ..., stability: _Optional[float] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("index", "start_s", "end_s", "text", "words", "language")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    index: int
    start_s: float
    end_s: float
    text: str
    words: _containers.RepeatedCompositeFieldContainer[Word]
    language: str
    def __init__(self, index: _Optional[int] = ..., start_s: _Optional[float] = ..., end_s: _Optional[float] = ..., text: _Optional[str] = ..., words: _Optional[_Iterable[_Union[Word, _Mapping]]] = ..., language: _Optional[str] = ...) -> None: ...

class TranscribeSummary(_message.Message):
    __slots__ = ("text", "audio_s", "speech_s", "busy_s", "model", "language")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    AUDIO_S_FIELD_NUMBER: _ClassVar[int]
    SPEECH_S_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    text: str
    audio_s: float
    speech_s: float
    busy_s: float
    model: str
    language: str
    def __init__(self, text: _Optional[str] = ..., audio_s: _Optional[float] = ..., speech_s: _Optional[float] = ..., busy_s: _Optional[float] = ..., model: _Optional[str] = ..., language: _Optional[str] = ...) -> None: ...

class AudioFormat(_message.Message):
    __slots__ = ("encoding", "sample_rate_hz", "channels")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoding
    sample_rate_hz: int
    channels: int
    def __init__(self, encoding: _Optional[_Union[Encoding, str]] = ..., sample_rate_hz: _Optional[int] = ..., channels: _Optional[int] = ...) -> None: ...

class StreamOptions(_message.Message):
    __slots__ = ("format", "language", "policy", "pause_ms")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    format: AudioFormat
    language: str
    policy: Policy
    pause_ms: int
    def __init__(self, format: _Optional[_Union[AudioFormat, _Mapping]] = ..., language: _Optional[str] = ..., policy: _Optional[_Union[Policy, str]] = ..., pause_ms: _Optional[int] = ...) -> None: ...

class TranscribeStreamRequest(_message.Message):
    __slots__ = ("options", "audio")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    options: StreamOptions
    audio: bytes
    def __init__(self, options: _Optional[_Union[StreamOptions, _Mapping]] = ..., audio: _Optional[bytes] = ...) -> None: ...

class TranscribeStreamResponse(_message.Message):
    __slots__ = ("speech_started", "partial", "segment", "behind", "summary")
    SPEECH_STARTED_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    speech_started: SpeechStarted
    partial: Partial
    segment: Segment
    behind: Behind
    summary: StreamSummary
    def __init__(self, speech_started: _Optional[_Union[SpeechStarted, _Mapping]] = ..., partial: _Optional[_Union[Partial, _Mapping]] = ..., segment: _Optional[_Union[Segment, _Mapping]] = ..., behind: _Optional[_Union[Behind, _Mapping]] = ..., summary: _Optional[_Union[StreamSummary, _Mapping]] = ...) -> None: ...

class SpeechStarted(_message.Message):
    __slots__ = ("at_s",)
    AT_S_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    def __init__(self, at_s: _Optional[float] = ...) -> None: ...

class Partial(_message.Message):
    __slots__ = ("index", "text", "words", "confirmed", "audio_s")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    AUDIO_S_FIELD_NUMBER: _ClassVar[int]
    index: int
    text: str
    words: _containers.RepeatedCompositeFieldContainer[Word]
    confirmed: int
    audio_s: float
    def __init__(self, index: _Optional[int] = ..., text: _Optional[str] = ..., words: _Optional[_Iterable[_Union[Word, _Mapping]]] = ..., confirmed: _Optional[int] = ..., audio_s: _Optional[float] = ...) -> None: ...

class Behind(_message.Message):
    __slots__ = ("behind_s",)
    BEHIND_S_FIELD_NUMBER: _ClassVar[int]
    behind_s: float
    def __init__(self, behind_s: _Optional[float] = ...) -> None: ...

class StreamSummary(_message.Message):
    __slots__ = ("text", "audio_s", "speech_s", "busy_s", "model", "language")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    AUDIO_S_FIELD_NUMBER: _ClassVar[int]
    SPEECH_S_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    text: str
    audio_s: float
    speech_s: float
    busy_s: float
    model: str
    language: str
    def __init__(self, text: _Optional[str] = ..., audio_s: _Optional[float] = ..., speech_s: _Optional[float] = ..., busy_s: _Optional[float] = ..., model: _Optional[str] = ..., language: _Optional[str] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("name", "device", "compute_type", "streams", "max_streams", "load")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_TYPE_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAMS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    name: str
    device: str
    compute_type: str
    streams: int
    max_streams: int
    load: float
    def __init__(self, name: _Optional[str] = ..., device: _Optional[str] = ..., compute_type: _Optional[str] = ..., streams: _Optional[int] = ..., max_streams: _Optional[int] = ..., load: _Optional[float] = ...) -> None: ...
