"""`hedgerow chat`: a conversation."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow import Message
from hedgerow._option_types import MeshOptions
from hedgerow_cli import options
from hedgerow_cli.connection_options import Reach, to_gateway
from hedgerow_cli.option_groups import with_options
from hedgerow_cli.request_flags import request_flags

if TYPE_CHECKING:
    from hedgerow import Client, Options

_HELP = "/reset begins a new conversation · /quit or Ctrl-D leaves · Ctrl-C stops an answer"


@with_options(chosen=request_flags("tier", "budget_ms"), reach=to_gateway)
def chat(
    *,
    chosen: MeshOptions,
    model: options.Model = None,
    system: options.System = None,
    temperature: Annotated[float | None, typer.Option(metavar="T", help="0 is greedy, up to 2.")] = None,
    reach: Reach,
) -> None:
    """Hold a conversation with a model.

    /reset begins a new conversation, /quit or Ctrl-D leaves, Ctrl-C stops the present answer.

    \b
    Example:
      hedgerow chat --tier quality
    """
    from hedgerow import Client
    from hedgerow_cli.failures import reported

    own: Options = {"model": model, "system": system, "temperature": temperature}
    choices: Options = {**chosen, **own}
    with reported(), Client(**reach) as client:
        client.prewarm(timeout_s=2)
        print(_HELP)
        _converse(client, choices)


def _converse(client: Client, choices: Options) -> None:
    _edit_lines()
    said: list[Message] = []
    while (line := _read_line()) is not None:
        match line.strip():
            case "":
                continue
            case "/quit" | "/exit":
                return
            case "/reset":
                said = []
                print("Forgotten.")
            case command if command.startswith("/"):
                print(_HELP)
            case question:
                said = _answer(client, [*said, Message("user", question)], choices) or said


def _edit_lines() -> None:
    """Line editing and history, where Python was built with them."""
    with suppress(ImportError):
        import readline  # noqa: F401


def _read_line() -> str | None:
    """A line; empty after Ctrl-C, None after Ctrl-D."""
    try:
        return input("\n> ")
    except KeyboardInterrupt:
        return ""
    except EOFError:
        print()
        return None


def _answer(client: Client, messages: list[Message], choices: Options) -> list[Message] | None:
    """The conversation with the answer at its end; None where there is none worth remembering."""
    from hedgerow import HedgerowError
    from hedgerow_cli.failures import explain, notify
    from hedgerow_cli.screen import written_as_it_comes

    try:
        with written_as_it_comes() as write:
            answer = client.ask(messages, on_token=write, **choices)
    except KeyboardInterrupt:
        print("(stopped)")
        return None
    except HedgerowError as error:
        notify(explain(error))
        return None
    if answer.finish_reason not in ("stop", "length"):
        print(f"({answer.finish_reason})")
    return [*messages, Message("assistant", answer.text)] if answer.text else None
