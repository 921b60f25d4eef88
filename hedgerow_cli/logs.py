"""`hedgerow logs`: the logs of a mesh's services."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hedgerow_cli import log_files, running

_LOOK_S = 0.2
_MOST_LINES = 100_000


def _services(context: typer.Context, incomplete: str) -> list[str]:
    """For a shell that completes."""
    folder = context.params.get("state_dir") or running.FOLDER
    return [name for name in log_files.known(Path(folder)) if name.startswith(incomplete)]


def logs(
    service: Annotated[
        str | None,
        typer.Argument(
            metavar="SERVICE",
            help='A service\'s name, as in "hedgerow status", for it and its replicas. Without it, all.',
            autocompletion=_services,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow new lines, until the mesh stops or Ctrl-C.")
    ] = False,
    tail: Annotated[
        int,
        typer.Option("--tail", "-n", metavar="N", min=0, max=_MOST_LINES, help="Number of last lines of each service."),
    ] = 100,
    state_dir: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Where a mesh keeps its logs. Without it: of the mesh that runs from this folder, else of the last "
            "one that did.",
            callback=running.the_last_folder,
        ),
    ] = running.FOLDER,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on a line: the service, and the line of its log.")
    ] = False,
) -> None:
    """Show the logs of the services, also of a mesh that has ended.

    With several services each line begins with its service's name. A full log (64 MiB) is truncated; the older lines
    are in NAME.log.1 of the state folder's logs.

    \b
    Examples:
      hedgerow logs
      hedgerow logs gateway --follow
      hedgerow logs --tail 1000 --json | jq -r 'select(.service == "router") | .line'
    """
    places = _places(service, state_dir)
    runs = running.is_held(state_dir)
    try:
        _show(places, service, state_dir, tail, as_json, follow=follow and runs)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if follow and not runs:
        from hedgerow_cli.failures import notify

        notify(f"no mesh runs in {state_dir}: there is nothing to follow")


def _places(service: str | None, folder: Path) -> dict[str, log_files.LogPlace]:
    """The logs. Raises `BadParameter` where there is none."""
    from difflib import get_close_matches

    if places := log_files.places(folder, service):
        return places
    known = log_files.known(folder)
    if service is None or not known:
        raise typer.BadParameter(f"no mesh has run in {folder}; name its state folder", param_hint="--state-dir")
    near = get_close_matches(service, known, n=1)
    there = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    raise typer.BadParameter(f"{folder} has no log of {service}; {there}", param_hint="SERVICE")


def _show(
    places: dict[str, log_files.LogPlace], service: str | None, folder: Path, tail: int, as_json: bool, *, follow: bool
) -> None:
    import sys
    import time
    from contextlib import suppress

    from hedgerow_cli.terminal import harmless

    read = {name: place.open() for name, place in places.items()}
    said: dict[str, str] = {}  # the service of each log's last line
    alone = service is not None and len(places) == 1
    shown = harmless if sys.stdout.isatty() else str

    def show(name: str, lines: list[str]) -> None:
        for line in lines:
            said[name] = log_files.service_of(name, line, said.get(name, name))
            print(shown(_formatted(said[name], line, as_json, alone)), flush=follow)

    for name, log in read.items():
        show(name, log.last(tail))
    while follow:
        goes_on = running.is_held(folder)  # before the last look: what it says at its end is shown
        for name, place in log_files.places(folder, service, log_files.MOST_AT_ONCE).items():
            read.setdefault(name, place.open())
        for name, log in read.items():
            with suppress(FileNotFoundError):
                show(name, list(log.more()))
        if not goes_on:
            break
        time.sleep(_LOOK_S)
    for name, log in read.items():
        show(name, log.rest() if tail else [])


def _formatted(name: str, line: str, as_json: bool, alone: bool) -> str:
    import json

    if as_json:
        return json.dumps({"service": name, "line": line})
    return line if alone else f"{name} | {line}"
