"""Settings of the audio service."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.runtime.process.config import ServiceSettings
from services.runtime.process.fixed import Fixed

_MIB = 1024 * 1024


class AudioSettings(ServiceSettings):
    """Settings of the audio service."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_AUDIO_", protected_namespaces=())

    address: str = Field("127.0.0.1:50056", description="Where to serve gRPC, host:port.")

    model: str = Field(min_length=1, description="A CTranslate2 Whisper model: its folder, or its name on the hub.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where the model runs.")
    compute_type: str = Field("auto", description="For example `int8`; `auto`: int8 on a CPU, float16 on CUDA.")
    threads: int = Field(
        0,
        ge=0,
        le=256,
        description="Threads of the model for one piece of work, on a CPU. 0: the cores there are, over `workers`, at "
        "most 8.",
    )
    shortest_window_s: Fixed[float] = Field(
        0,
        ge=0,
        le=30,
        description="The least that the encoder gets, in seconds; shorter audio is padded. Whispers are trained on "
        "30 s; less is faster, and wrong where a model does not bear it. 0: what the model's "
        "`preprocessor_config.json` says, or 10 s.",
    )
    workers: int = Field(1, ge=1, le=64, description="Pieces of work that the model does at once.")
    batch_windows: int = Field(
        4,
        ge=1,
        le=64,
        description="Windows of up to 30 s of a recording that are decoded together while no stream is open; 1 while "
        "one is. More is faster; on a CPU each adds 0.3 s to the wait of a stream that comes meanwhile (whisper-base).",
    )
    language: str = Field(
        "",
        pattern="^([a-z]{2,3})?$",
        description="ISO 639-1, where a request names no language; the model must know it. Empty: the model detects "
        "it; an English-only model transcribes English.",
    )

    policy: Literal["windows", "local_agreement"] = Field(
        "local_agreement", description="When a word of a stream counts as sure, where a request does not say."
    )
    pause_ms: Fixed[int] = Field(
        500, ge=100, le=5_000, description="Silence that closes a segment, where a request does not say."
    )
    window_s: Fixed[float] = Field(5.0, ge=1, le=30, description="Policy windows: how much is transcribed at a time.")
    overlap_s: Fixed[float] = Field(
        0.5, ge=0, le=5, description="Policy windows: how much of the last window is in the next."
    )
    step_ms: Fixed[int] = Field(
        300, ge=100, le=5_000, description="New audio in a stream after which it is transcribed again."
    )

    max_streams: int = Field(8, ge=1, le=4_096, description="Streams open at once; more are refused.")
    max_recordings: int = Field(4, ge=1, le=4_096, description="Recordings in hand at once; more are refused.")
    max_load: Fixed[float] = Field(
        0.85,
        gt=0,
        le=1,
        description="Share of the model's time that streams may need; one that would need more is refused.",
    )

    max_file_bytes: int = Field(32 * _MIB, ge=1_024, description="Largest recording taken, in bytes of its file.")
    max_duration_s: float = Field(3_600.0, gt=0, le=86_400, description="Longest recording taken, in seconds.")
    recording_base_ms: Fixed[int] = Field(
        30_000,
        ge=100,
        description="Time limit of a recording, in milliseconds, to which `recording_time_factor` adds its length. A "
        "call's own deadline may be earlier.",
    )
    recording_time_factor: float = Field(
        3.0,
        ge=0,
        le=100,
        description="Seconds added to a recording's time limit for each second of its length. Raise it where a large "
        "model is slower than that.",
    )
    max_pcm_bytes: Fixed[int] = Field(
        1_536 * _MIB,
        ge=1_024,
        description="Most that a recording may decode to: 32-bit floats of all its channels at its own rate. They are "
        "counted and never held; held is mono at 16 kHz, 230 MB for an hour.",
    )
    max_stream_s: float = Field(
        3_600.0, gt=0, le=86_400, description="Longest stream, in seconds of its audio and in seconds since it began."
    )
    max_ahead_ms: Fixed[int] = Field(
        5_000,
        ge=100,
        description="How far a stream's audio may run ahead of real time; a client that sends faster is throttled.",
    )
    max_behind_ms: Fixed[int] = Field(
        30_000,
        ge=20_000,
        description="Most audio of a stream that is kept for the model; when there is more, its client is throttled.",
    )
    idle_timeout_ms: Fixed[int] = Field(
        30_000, ge=100, description="Longest time without a byte of audio from a client."
    )
