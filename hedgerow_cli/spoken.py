"""A question that is played as it was spoken, and its answer: a conversation on the screen."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hedgerow import (
    Answer,
    AsyncClient,
    ConversationEvent,
    Final,
    Interrupted,
    InvalidArgument,
    Options,
    Patch,
    TextDelta,
    Transcript,
    TurnFailed,
)
from hedgerow_cli import failures, options
from hedgerow_cli.report import as_object
from hedgerow_cli.screen import Captions, ScreenWriter, print_report
from hedgerow_cli.terminal import PlainConsole

Show = Callable[[int, ConversationEvent], None]


async def converse(
    client: AsyncClient, audio: Path, images: Sequence[Path], pause_ms: int | None, options: Options, show: Show
) -> bool:
    """Play the recording and show its events; whether every turn was answered.

    Raises `InvalidArgument` for a recording without speech.
    """
    with failures.needs("cli"):
        from hedgerow_cli.playback import opened

    transcribed, answered = False, True
    with opened(audio) as playback:
        async with aclosing(playback.blocks()) as blocks:
            format = playback.format
            conversation = client.converse(blocks, format=format, pause_ms=pause_ms, images=images, **options)
            async with conversation:
                async for turn, event in conversation:
                    show(turn, event)
                    transcribed |= isinstance(event, Transcript) and event.final
                    answered &= not _failed(event)
    if not transcribed:
        raise InvalidArgument(f"audio: speech is needed, got none in {audio}", reason="NO_SPEECH")
    return answered


def _failed(event: ConversationEvent) -> bool:
    match event:
        case Final(answer):
            return answer.finish_reason not in options.COMPLETE
        case TurnFailed():
            return True
    return False


class SpokenScreen:
    """Words as they are spoken, then the answer as it is written, then where the time went."""

    def __init__(self, waterfall: bool):
        self._console = PlainConsole()
        self._captions = Captions(self._console)
        self._write = ScreenWriter()
        self._waterfall = waterfall

    def __call__(self, turn: int, event: ConversationEvent) -> None:
        match event:
            case Transcript(text, final=True):
                self._begin_line()
                self._captions.final(f"transcript  {text}")
            case Transcript(text, confirmed):
                self._write.end_line()
                self._captions.partial(text, confirmed)
            case TextDelta(text):
                self._captions.clear()
                self._write(text)
            case Patch(text=text, replaces=True):
                self._captions.clear()
                self._write.instead(text)
            case Final(answer):
                self._begin_line()
                self._report(answer)
            case Interrupted():
                self._begin_line()
                print("(interrupted)", flush=True)
            case TurnFailed(error):
                self._begin_line()
                failures.notify(failures.explain(error))

    def close(self) -> None:
        """Leave the terminal with its line ended, whatever happened."""
        self._begin_line()

    def _begin_line(self) -> None:
        self._captions.clear()
        self._write.end_line()

    def _report(self, answer: Answer) -> None:
        if self._waterfall:
            print_report(self._console, replace(answer, transcript=""))  # what was heard stands above it


def print_event(turn: int, event: ConversationEvent) -> None:
    """One JSON object on a line."""
    print(json.dumps({"turn": turn, **event_object(event)}), flush=True)


def event_object(event: Any) -> dict[str, Any]:
    """`{"event": "text_delta", "text": …}`."""
    match event:
        case Final(answer):
            fields = as_object(answer)
        case TurnFailed(error):
            fields = {"error": failures.as_object(error)}
        case _:
            fields = asdict(event)
    name = type(event).__name__
    return {"event": "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_"), **fields}
