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

    address: str = Field("127.0.0.1:50056", description="Address of gRPC, host:port.")

    model: str = Field(min_length=1, description="A CTranslate2 Whisper model: its folder, or its name on the hub.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where the model runs.")
    compute_type: str = Field("auto", description="For example `int8`; `auto`: int8 on a CPU, float16 on CUDA.")
    threads: int = Field(
        0,
        ge=0,
        le=256,
        description="CPU threads for one run of the model. 0: the usable cores divided by `workers`, at most 8.",
    )
    shortest_window_s: Fixed[float] = Field(
        0,
        ge=0,
        le=30,
        description="The least that the encoder gets, in seconds; shorter audio is padded. Whispers are trained on "
        "30 s; less is faster, and wrong where a model does not bear it. 0: what the model's "
        "`preprocessor_config.json` says, or 10 s.",
    )
    workers: int = Field(1, ge=1, le=64, description="Runs of the model at once.")
    batch_windows: Fixed[int | None] = Field(
        None,
        ge=1,
        le=64,
        description="Windows of 30 s of a recording that are decoded together while no stream is open. More is "
        "faster, and delays new streams. None: 8 on a GPU, 4 on a CPU.",
    )
    language: str = Field(
        "",
        pattern="^([a-z]{2,3})?$",
        description="ISO 639-1 code for requests that name no language. Empty: the model detects it.",
    )

    policy: Fixed[Literal["windows", "local_agreement"]] = Field(
        "local_agreement", description="When a word of a stream is final, for requests that do not say."
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

    max_streams: int = Field(8, ge=1, le=4_096, description="Streams open at once; further ones are refused.")
    max_recordings: Fixed[int | None] = Field(
        None,
        ge=1,
        le=4_096,
        description="Recordings in work at once; further ones are refused. None: four for each of `workers`.",
    )
    max_load: Fixed[float] = Field(
        0.85,
        gt=0,
        le=1,
        description="Share of the model's time that streams may need; one that would need more is refused.",
    )

    max_file_bytes: int = Field(32 * _MIB, ge=1_024, description="Largest file of a recording.")
    max_duration_s: float = Field(3_600.0, gt=0, le=86_400, description="Longest recording and stream.")
    recording_base_ms: Fixed[int] = Field(
        30_000,
        ge=100,
        description="Time limit of a recording, in milliseconds, to which `recording_time_factor` adds its length. A "
        "call's own deadline may be earlier.",
    )
    recording_time_factor: float = Field(
        3.0, ge=0, le=100, description="Time limit of a recording, in seconds for each second of audio."
    )
    max_pcm_bytes: Fixed[int] = Field(
        1_536 * _MIB,
        ge=1_024,
        description="Most that a recording may decode to: 32-bit floats of all its channels at its own rate. They are "
        "counted and never held; held is mono at 16 kHz, 230 MB for an hour.",
    )
    max_stream_s: Fixed[float | None] = Field(
        None, gt=0, le=86_400, description="Longest stream. None: `max_duration_s`."
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

    @property
    def recordings(self) -> int:
        """How many recordings may be in work at once."""
        return self.max_recordings or 4 * self.workers

    @property
    def stream_s(self) -> float:
        """The longest stream, in seconds."""
        return self.max_stream_s or self.max_duration_s
