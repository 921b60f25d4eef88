"""Showing what is said: segments with their times, how far a recording is, words while they are spoken."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hedgerow import Behind, Heard, Partial, Recording, Segment, SpeechSummary, Transcription
from hedgerow_cli.screen import Captions
from hedgerow_cli.spoken import event_object
from hedgerow_cli.terminal import PlainConsole, harmless


def segment_lines(segment: Segment, words: bool) -> Iterator[str]:
    """`   0.00   2.35  What is the capital of France?`, and below it each word where they are asked for."""
    yield f"{segment.start_s:7.2f} {segment.end_s:7.2f}  {segment.text}"
    for word in segment.words if words else ():
        yield f"{word.start_s:7.2f} {word.end_s:7.2f}    {word.text}  {word.probability:.2f}"


def summary_line(done: Transcription | SpeechSummary) -> str:
    """How long it all took. The real-time factor is the model's work for a second of audio."""
    factor = f" · real-time factor {done.busy_s / done.audio_s:.2f}" if done.audio_s else ""
    spoken = f"{done.audio_s:.1f} s of audio · {done.speech_s:.1f} s of speech"
    language = f" · {done.language}" if done.language else ""
    return f"{spoken} · {done.busy_s:.1f} s of work{factor} · {done.model}{language}"


class Progressing:
    """Prints segments as they come; below them, in a terminal, a bar shows how far the recording is."""

    def __init__(self, silent: bool):
        self._silent = silent
        on_stdout = sys.stdout.isatty()
        self._console = PlainConsole(stderr=not on_stdout)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            redirect_stdout=on_stdout,  # else segments that go into a file would go to the bar's screen
            disable=silent or not self._console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._bar.stop()

    def recording(self, found: Recording) -> None:
        """The file is decoded: from here on it is known how long it is."""
        self._task = self._bar.add_task(found.format, total=found.duration_s)

    def segment(self, segment: Segment) -> None:
        """One more is done."""
        if self._task is not None:
            self._bar.update(self._task, completed=segment.end_s)
        if not self._silent:
            for line in segment_lines(segment, words=True):  # they are empty unless they were asked for
                print(harmless(line), flush=True)


class LiveScreen:
    """Words as they are spoken, and each segment in their place when it is closed."""

    def __init__(self, words: bool):
        self._words = words
        self._captions = Captions(PlainConsole())

    def __call__(self, event: Heard) -> None:
        match event:
            case Partial(text=text, confirmed=confirmed):
                self._captions.partial(text, confirmed)
            case Segment():
                for line in segment_lines(event, self._words):
                    self._captions.final(line)
            case Behind(behind_s):
                self._captions.final(f"({behind_s:.1f} s behind)", "dim")
            case SpeechSummary():
                self._captions.final(summary_line(event))

    def close(self) -> None:
        """Leave the terminal without a half line."""
        self._captions.clear()


def print_event(event: Heard) -> None:
    """One JSON object on a line."""
    print(json.dumps(event_object(event)), flush=True)
