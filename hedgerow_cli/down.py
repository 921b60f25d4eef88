"""`hedgerow down`: stops the mesh that runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hedgerow_cli import options, running

_LOOK_S = 0.1


def down(
    state_dir: options.StateDir = running.FOLDER,
    timeout_s: Annotated[
        float, typer.Option(metavar="S", min=0, max=600, help="Longest wait for the end of the mesh, in seconds.")
    ] = 60,
    as_json: options.AsJson = False,
) -> None:
    """Stop the mesh that "hedgerow up" started from this folder, or the one of --state-dir.

    Requests in progress are finished first, for at most 15 s. Returns when the mesh has stopped. Exits with 0 also if
    none runs.

    \b
    Examples:
      hedgerow down
      hedgerow down --state-dir .hedgerow/meshes/prod --json | jq -r '.ended[].services[]'
    """
    import json

    services = [str(service["name"]) for service in running.services(state_dir)]
    pid = running.launcher_of(state_dir)
    if pid:
        _end(pid, state_dir, timeout_s, as_json)
    ended = [{"state_dir": str(state_dir), "pid": pid, "services": services}] if pid else []
    if as_json:
        print(json.dumps({"ended": ended}))
    elif pid:
        print(f"ended the mesh of {state_dir} (process {pid}): {', '.join(services) or 'no service had started'}")
    else:
        print(f"no mesh runs in {state_dir}: nothing to end")


def _end(pid: int, state_dir: Path, timeout_s: float, as_json: bool) -> None:
    import os
    import signal
    import time

    from hedgerow_cli.failures import fail

    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:  # it has just ended, or runs in a container
        pass
    except PermissionError:
        fail(f"process {pid}, the mesh of {state_dir}, is another user's", "NOT_ENDED", as_json)
    until = time.monotonic() + timeout_s
    while running.is_held(state_dir):
        if time.monotonic() > until:
            limit = f"after {timeout_s:g} s (--timeout-s); it goes on ending"
            fail(f"process {pid}, the mesh of {state_dir}, has not ended {limit}", "NOT_ENDED", as_json)
        time.sleep(_LOOK_S)
