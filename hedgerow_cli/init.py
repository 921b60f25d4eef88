"""`hedgerow init`: a first mesh file, from four questions."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow_cli import mesh_file, options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.meshfile.template import InitAnswers


class Callers(StrEnum):
    """Which callers the mesh accepts."""

    LOCAL = "local"
    KEYS = "keys"


class StoredAnswers(StrEnum):
    """Which stored answers are given."""

    NO = "no"
    EXACT = "exact"
    SEMANTIC = "semantic"


def init(
    file: mesh_file.MeshFile = mesh_file.DEFAULT,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A folder (./models/mine), a name on the hub, PROVIDER:NAME (openai:gpt-5-mini; also anthropic, "
            "gemini, openrouter, ollama, vllm), NAME=URL of an OpenAI-compatible server (NAME=URL#ITS_NAME where it "
            'has another name there), or "URL NAME".',
        ),
    ] = None,
    key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable that holds the provider's key.")
    ] = None,
    callers: Annotated[
        Callers | None,
        typer.Option(help="Callers that are accepted: `local`, all on this machine; `keys`, those with a key."),
    ] = None,
    stored_answers: Annotated[
        StoredAnswers | None,
        typer.Option(
            help="Whether an answer may be given again: `no`, `exact` (to the very same question), `semantic` (also to "
            "other wordings)."
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: use the default of each option that is not given.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a mesh file: model, key, accepted callers, stored answers.

    Asks for values that no option gives. The file has comments for further keys, and contains no API key: keys stay in
    the environment.

    \b
    Examples:
      hedgerow init
      hedgerow init --yes --model openai:gpt-5-mini
      hedgerow init --yes --model ./models/mine --callers keys prod.yaml
      hedgerow init --yes --model ./models/mine --stored-answers exact
      hedgerow init --yes --model qwen=http://127.0.0.1:8000/v1#Qwen/Qwen3-8B --key-env VLLM_API_KEY
    """
    import json

    from hedgerow_cli.failures import needs

    with needs("launcher", as_json):
        from launcher.meshfile.template import write

    if file.exists() and not force:
        raise typer.BadParameter(f"{file} is there already; --force writes over it", param_hint="FILE")
    if yes and not model:
        raise typer.BadParameter("needed with --yes", param_hint="--model")
    try:
        answers = _answers(model, key_env, callers, stored_answers, ask=not yes)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--model") from None
    try:
        file.write_text(write(answers), "utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}", param_hint="FILE") from None
    if as_json:
        print(json.dumps({"file": str(file), "needs": answers.needed, "stored_answers": answers.stored}))
    else:
        _print_next_steps(file, answers)


def _print_next_steps(file: Path, answers: InitAnswers) -> None:
    import shlex

    from launcher.meshfile.template import CALLERS_KEY

    print(f"wrote {file}. Next:")
    for name in answers.needed:
        print(f"  export {name}={'$(openssl rand -hex 24)' if name == CALLERS_KEY else '…'}")
    print(f"  hedgerow up {shlex.quote(str(file))}")


def _usable(model: str) -> str:
    from launcher.meshfile.template import place_of

    try:
        place_of(model)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return model


def _one_of(words: type[StrEnum]) -> Callable[[str], str]:
    def checked(given: str) -> str:
        if given not in list(words):
            raise typer.BadParameter(f"one of {', '.join(words)}, got {given}")
        return given

    return checked


def _answers(
    model: str | None, key_env: str | None, callers: Callers | None, stored: StoredAnswers | None, ask: bool
) -> InitAnswers:
    import asyncio
    import os

    from launcher.meshfile.template import InitAnswers, place_of, usual_key
    from launcher.meshfile.without_file import named_by_server

    if not model:
        typer.echo("A folder (./models/mine), a name on the hub (Qwen/Qwen3-8B), a provider's model", err=True)
        typer.echo("(openai:gpt-5-mini, anthropic:…, gemini:…, openrouter:…, ollama:…), or NAME=URL.", err=True)
        model = str(typer.prompt("Which model?", err=True, value_proc=_usable))
    if key_env is None and "url" in place_of(model):
        usual = usual_key(model)
        key_env = str(typer.prompt("Which variable has its key? (empty: none)", usual, err=True)) if ask else usual
    if callers is None and ask:
        question = "Which callers? local: all on this machine; keys: those with a key"
        callers = Callers(typer.prompt(question, "local", err=True, value_proc=_one_of(Callers)))
    if stored is None and ask:
        question = "May a stored answer be given again? no; exact: to the same question; semantic: also other wordings"
        stored = StoredAnswers(typer.prompt(question, "no", err=True, value_proc=_one_of(StoredAnswers)))
    key_env = (key_env or "").strip()
    model = asyncio.run(named_by_server(model, os.environ.get(key_env, "")))
    return InitAnswers(model, key_env, (callers or Callers.LOCAL).value, (stored or StoredAnswers.NO).value)
