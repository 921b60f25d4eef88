"""`hedgerow cache train` and `calibrate`: what decides on semantic hits, made of an operator's own labelled pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hedgerow.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Pairs = Annotated[
    Path,
    typer.Argument(
        metavar="PAIRS",
        help='Labelled pairs of questions, one a line: {"a": "…", "b": "…", "duplicate": 0 or 1}; .gz is read too.',
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="The same pairs and seed give the same parts and order.")]


def train(
    pairs: Pairs,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to put what is made; it must not exist.")],
    minutes: Annotated[float, typer.Option(metavar="N", min=0.1, help="How long the training may take.")] = 60.0,
    seed: Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Train a verifier on your own labelled pairs, and certify how often it is wrong.

    It reads both questions where their embeddings are near. Three quarters of the pairs train it; thresholds are
    certified on a fifth that nothing else saw. Nothing leaves this machine. Use it with HEDGEROW_CACHE_VERDICT=FOLDER.

    \b
    Examples:
      hedgerow cache train pairs.jsonl.gz verdict
    """
    _make("train", pairs, folder, as_json, "--minutes", str(minutes), "--seed", str(seed))


def calibrate(
    pairs: Pairs,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="One that `train` made, or a new one, which has no verifier then.")
    ],
    seed: Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Certify thresholds on your own labelled pairs, in a minute and without training.

    For each share of wrong hits the loosest threshold that holds it with 95% confidence, as long as traffic is like
    these pairs. Use it with HEDGEROW_CACHE_VERDICT=FOLDER.

    \b
    Examples:
      hedgerow cache calibrate pairs.jsonl.gz verdict
      HEDGEROW_CACHE_VERDICT=verdict HEDGEROW_CACHE_MAX_WRONG=0.005 hedgerow up
    """
    _make("calibrate", pairs, folder, as_json, "--seed", str(seed))


def _make(command: str, pairs: Path, folder: Path, as_json: bool, *more: str) -> None:
    """In a process of the cache service's own code, which has the model."""
    import json
    import signal
    import sys
    from importlib.util import find_spec

    from hedgerow.cli.failures import needs

    with needs("cache,embedder", as_json):
        for module in ("services", "faiss", "sentence_transformers", "sklearn"):  # loading them takes seconds
            if not find_spec(module):
                raise ModuleNotFoundError(name=module)
    program = [sys.executable, "-m", "services.cache.training", command, str(pairs), str(folder), *more]
    code, made, said = _run(program)
    if code in (130, -signal.SIGINT):
        raise typer.Exit(130)
    if code:
        _refuse(code == 2, said, as_json)
    if as_json:
        print(made.strip())
    else:
        _print(json.loads(made))


def _run(program: Sequence[str]) -> tuple[int, str, str]:
    """(its exit code, its stdout, the last line of its stderr), which is shown as it comes. Whoever tells us to stop
    has it told once, so that it leaves nothing behind; it ends when this process is killed."""
    import signal
    import subprocess
    import sys

    from launcher.parent_death_signal import killed_with_parent

    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    command, pipe = killed_with_parent(program), subprocess.PIPE
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored, which is inherited
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, process_group=0) as running:

        def stop(*_: object) -> None:
            for number in stops:
                signal.signal(number, signal.SIG_IGN)
            running.send_signal(signal.SIGINT)

        for number in stops:
            signal.signal(number, stop)
        said = ""
        for said in running.stderr or ():
            print(said, end="", file=sys.stderr, flush=True)
        made = running.stdout.read() if running.stdout else ""
    return running.returncode, made, said


def _refuse(input_is_bad: bool, said: str, as_json: bool) -> NoReturn:
    import json

    if as_json:
        code, reason = ("INVALID_ARGUMENT", "BAD_INPUT") if input_is_bad else ("INTERNAL", "TRAINING_FAILED")
        message = said.strip() or "it ended without a word"
        print(json.dumps({"error": {"code": code, "reason": reason, "message": message}}))
    raise typer.Exit(1)


def _print(made: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for name in ("wrong of lookups, at most", "least score", "duplicates found", "wrong when certified"):
        table.add_column(name, justify="right")
    for each in made["thresholds"]:
        wrong = f"{each['wrong_hits']} of {each['lookups']}"
        table.add_row(f"{each['wrong']:.1%}", f"{each['score']:.3f}", f"{each['found']:.1%}", wrong)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"in {made['folder']}, after {made['made_of']['minutes']:g} minutes")
