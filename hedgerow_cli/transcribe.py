"""`hedgerow transcribe`: the transcript of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow_cli import options
from hedgerow_cli.connection_options import Reach, to_audio
from hedgerow_cli.option_groups import with_options

if TYPE_CHECKING:
    from hedgerow_cli.options import PolicyName


@with_options(reach=to_audio)
def transcribe(
    file: Annotated[
        Path, typer.Argument(help="A recording: WAV, FLAC, MP3, Ogg Opus, WebM Opus or M4A.", metavar="FILE")
    ],
    stream: Annotated[
        bool, typer.Option("--stream", help="Play it at its own speed, and show words while they are spoken.")
    ] = False,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="ISO 639-1, for example en. Without it, the one detected.")
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Show the times of each word.")] = False,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text before it, or names as they are spelled. Not with --stream."),
    ] = None,
    policy: Annotated[options.PolicyName | None, typer.Option(help="With --stream: when a word is confirmed.")] = None,
    pause_ms: options.PauseMs = None,
    as_json: options.JsonLines = False,
    *,
    reach: Reach,
) -> None:
    """Transcribe a recording.

    Segments are printed when they are done, each with the seconds of its beginning and end, then the duration of the
    work. With --stream the recording is played at its own speed: words appear while they are spoken, dim until they are
    confirmed.

    \b
    Examples:
      hedgerow transcribe talk.mp3
      hedgerow transcribe --words --json talk.flac | jq -r .text
      hedgerow transcribe --stream --policy local-agreement question.wav
    """
    for name, value in (("--policy", policy), ("--pause-ms", pause_ms)):
        if value is not None and not stream:
            raise typer.BadParameter("works with --stream alone", param_hint=name)
    if stream and prompt is not None:
        raise typer.BadParameter("does not work with --stream", param_hint="--prompt")
    if stream:
        _listen(file, language, words, policy, pause_ms, as_json, reach)
    else:
        _transcribe(file, language, words, prompt, as_json, reach)


def _transcribe(file: Path, language: str | None, words: bool, prompt: str | None, as_json: bool, reach: Reach) -> None:
    import json
    from dataclasses import asdict

    from hedgerow import AudioClient
    from hedgerow_cli.failures import reported
    from hedgerow_cli.transcripts import Progressing, summary_line

    with reported(as_json), AudioClient(**reach) as client, Progressing(silent=as_json) as show:
        done = client.transcribe(
            file, language=language, words=words, prompt=prompt, on_recording=show.recording, on_segment=show.segment
        )
    print(json.dumps(asdict(done)) if as_json else summary_line(done))


def _listen(
    file: Path,
    language: str | None,
    words: bool,
    policy: PolicyName | None,
    pause_ms: int | None,
    as_json: bool,
    reach: Reach,
) -> None:
    import asyncio
    from contextlib import aclosing, closing

    from hedgerow import AsyncAudioClient
    from hedgerow_cli.failures import needs, reported
    from hedgerow_cli.transcripts import LiveScreen, print_event

    with needs("cli", as_json):
        from hedgerow_cli.playback import opened

    async def play() -> None:
        async with AsyncAudioClient(**reach) as client, aclosing(playback.blocks()) as blocks:
            events = client.transcribe_stream(
                blocks,
                format=playback.format,
                language=language,
                policy=policy.value if policy else None,
                pause_ms=pause_ms,
            )
            async with events:
                async for event in events:
                    show(event)

    with reported(as_json), opened(file) as playback, closing(LiveScreen(words)) as screen:
        show = print_event if as_json else screen
        asyncio.run(play())
