"""`hedgerow ask`: one question, and the time of each stage."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow._option_types import MeshOptions
from hedgerow_cli import input_options, options
from hedgerow_cli.connection_options import Reach, to_gateway
from hedgerow_cli.option_groups import with_options
from hedgerow_cli.request_flags import request_flags

if TYPE_CHECKING:
    from hedgerow import Options


@with_options(chosen=request_flags(), form=input_options.FormOptions, tools=input_options.ToolOptions, reach=to_gateway)
def ask(
    question: Annotated[
        str | None,
        typer.Argument(help="The question; - reads it from stdin. May be left out with --audio.", metavar="QUESTION|-"),
    ] = None,
    image: options.Images = None,
    audio: options.Audio = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Play the recording as it was spoken, and answer at each pause.")
    ] = False,
    pause_ms: options.PauseMs = None,
    as_json: options.JsonLines = False,
    *,
    chosen: MeshOptions,
    model: options.Model = None,
    max_tokens: Annotated[int | None, typer.Option(metavar="N", help="The most tokens to generate.")] = None,
    temperature: Annotated[float | None, typer.Option(metavar="T", help="0 is greedy, up to 2.")] = None,
    system: options.System = None,
    form: input_options.FormOptions,
    tools: input_options.ToolOptions,
    waterfall: Annotated[bool, typer.Option(help="Show the time of each stage.")] = True,
    reach: Reach,
) -> None:
    """Ask one question, and show the time of each stage.

    The answer is printed as it arrives. Below it is a bar for each stage: the bright part is its time, the dim part the
    rest of its slice of the budget. Then come the transcript, the image labels, and the decisions of the gateway's
    policies, if there are any. Exits with 1 if a failure cut the answer off; the end of the budget is no failure.

    With --json-schema, the answer is JSON that matches, or an error, and with --choice one of the texts; with --repair
    the model is asked once more if the answer does not match. With --grammar, the engine follows the grammar. If
    --repair or --cascade-at-once replaces an answer, the replacement is printed after it; a file gets only the last
    text.

    With --tool FILE, the model may call your own tool: the calls are printed below the answer, and are in the object of
    --json.

    With --tool NAME and --collection, mesh tools are called at once, and their results stand before the question; a
    late result comes after the answer. With --agent or --mcp the model is offered the tools, and decides which to call.
    `hedgerow tools` lists them.

    With --image, pictures belong to the question. With --audio, a recording is the question, or comes before it; with
    --stream it is played at its own speed: words appear while they are spoken, dim until they are confirmed.

    \b
    Examples:
      hedgerow ask "What is the capital of France?"
      hedgerow ask --budget-ms 300 "Write a story about a fox."
      hedgerow ask --json - < question.txt | jq .finish_reason
      hedgerow ask --image shape.png "Which shape is in the image?"
      hedgerow ask --json-schema '{"type": "object", "properties": {"sum": {"type": "integer"}}}' "What is 2 plus 3?"
      hedgerow ask --choice yes --choice no "Is Paris in France?"
      hedgerow ask --tool clock.json --tool-choice required "What time is it in Oslo?"
      hedgerow ask --tool 'weather={"city": "Oslo"}' --collection manual "Do I need the winter tyres?"
      hedgerow ask --mcp files --tool weather --agent "What changed since yesterday?"
      hedgerow ask --audio question.wav
      hedgerow ask --audio question.wav --stream
      hedgerow ask --gateway mesh.example:443 --tls --api-key sesame "What can you do?"
    """
    _refuse_wrong_use(question, audio, stream, pause_ms)
    text = sys.stdin.read() if question == "-" else question
    images = image or []
    own: Options = {"model": model, "max_tokens": max_tokens, "temperature": temperature, "system": system}
    choices: Options = {**chosen, **own, **form.as_options(), **tools.as_options()}
    if stream and audio:
        _converse(audio, images, pause_ms, choices, reach, waterfall, as_json)
    elif as_json:
        _ask_json(text, images, audio, choices, reach)
    else:
        _ask(text, images, audio, choices, reach, waterfall)


def _refuse_wrong_use(question: str | None, audio: Path | None, stream: bool, pause_ms: int | None) -> None:
    if stream and not audio:
        raise typer.BadParameter("needs a recording to play: --audio FILE", param_hint="--stream")
    if stream and question is not None:
        raise typer.BadParameter("with --stream, what is spoken is the question", param_hint="QUESTION")
    if pause_ms is not None and not stream:
        raise typer.BadParameter("works with --stream alone", param_hint="--pause-ms")
    if question is None and not audio:
        raise typer.BadParameter("give one, or a recording with --audio", param_hint="QUESTION")


def _ask(
    text: str | None, images: list[Path], audio: Path | None, choices: Options, reach: Reach, waterfall: bool
) -> None:
    from hedgerow import Client
    from hedgerow_cli.failures import reported
    from hedgerow_cli.screen import print_report, written_as_it_comes
    from hedgerow_cli.terminal import PlainConsole

    with reported(), Client(**reach) as client, written_as_it_comes() as write:
        if write.replaceable or not (choices.get("repair") or choices.get("cascade_at_once")):
            answer = client.ask(text, images=images, audio=audio, on_token=write, on_replaced=write.instead, **choices)
        else:
            answer = client.ask(text, images=images, audio=audio, **choices)
            write(answer.text)
    if waterfall:
        print_report(PlainConsole(), answer)
    raise typer.Exit(answer.finish_reason not in options.COMPLETE)


def _ask_json(text: str | None, images: list[Path], audio: Path | None, choices: Options, reach: Reach) -> None:
    import json

    from hedgerow import Client
    from hedgerow_cli.failures import reported
    from hedgerow_cli.report import as_object

    with reported(as_json=True), Client(**reach) as client:
        answer = client.ask(text, images=images, audio=audio, **choices)
    print(json.dumps(as_object(answer)))
    raise typer.Exit(answer.finish_reason not in options.COMPLETE)


def _converse(
    audio: Path,
    images: list[Path],
    pause_ms: int | None,
    choices: Options,
    reach: Reach,
    waterfall: bool,
    as_json: bool,
) -> None:
    import asyncio

    from hedgerow import AsyncClient
    from hedgerow_cli.failures import reported
    from hedgerow_cli.spoken import SpokenScreen, converse, print_event

    async def play() -> bool:
        async with AsyncClient(**reach) as client:
            return await converse(client, audio, images, pause_ms, choices, show)

    with reported(as_json), closing(SpokenScreen(waterfall)) as screen:
        show = print_event if as_json else screen
        answered = asyncio.run(play())
    raise typer.Exit(not answered)
