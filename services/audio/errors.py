"""Errors of the audio service, as leaves of the one error tree, and reasons to refuse a start."""

from __future__ import annotations

from typing import ClassVar

from services.runtime.errors import Exhausted, TooLate


class StreamsFull(Exhausted):
    """One more stream would make those that are open fall behind."""

    reason: ClassVar[str] = "STREAMS_FULL"


class GaveWay(Exhausted):
    """The tenant had more than its share of all streams, or of all recordings, and another tenant asked for one."""

    reason: ClassVar[str] = "GAVE_WAY"


class RecordingsFull(Exhausted):
    """The limit of concurrent recordings is reached."""

    reason: ClassVar[str] = "RECORDINGS_FULL"


class OutOfMemory(Exhausted):
    """The memory of the model's device is full."""

    reason: ClassVar[str] = "OUT_OF_MEMORY"


class Idle(TooLate):
    """The client sent no bytes for too long. Recorded silence is bytes."""

    reason: ClassVar[str] = "IDLE"


class BadModel(Exception):
    """The model cannot be opened with these settings; the message, for the operator, says why."""
