"""The meshes that run from this folder: where their state is, and where their services are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

FOLDER, RUNNING_FILE = Path(".hedgerow"), "running.json"
_OF_FILES = "meshes"
_SAID = ("name", "address")  # of each service


def state_of(file: Path | None) -> Path:
    """Where the state of a mesh lies: of a mesh file beside it, under its name, of which `.yaml` is left out; of the
    demo's in this folder."""
    if file is None:
        return FOLDER
    return file.parent / FOLDER / _OF_FILES / (file.stem if file.suffix == ".yaml" else file.name)


def folders() -> list[Path]:
    """The state folders of the meshes that run from this folder."""
    return [each for each in [FOLDER, *sorted((FOLDER / _OF_FILES).glob("*"))] if services(each)]


def services(folder: Path) -> list[dict[str, Any]]:
    """The services of the mesh of this folder; the last one takes the calls. Empty where no mesh runs, although a mesh
    that was killed leaves its listing behind, and where the listing is not whole."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found: list[dict[str, Any]] = json.loads((folder / RUNNING_FILE).read_text("utf-8"))["services"]
        if all(isinstance(each[name], str) for each in found for name in _SAID) and is_held(folder):
            return found
    return []


def launcher_of(folder: Path) -> int | None:
    """The process id of the `hedgerow up` whose mesh has this folder, if one has."""
    try:
        pid = json.loads((folder / RUNNING_FILE).read_text("utf-8"))["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if isinstance(pid, int) and pid > 0 and is_held(folder) else None


def the_last_folder(context: typer.Context, option: typer.CallbackParam, given: Path) -> Path:
    """As `the_folder`; where none runs, the one with the newest logs."""
    chosen = the_folder(context, option, given)
    if _is_given(context, option) or is_held(chosen):
        return chosen
    logs = [*FOLDER.glob("logs/*.log"), *(FOLDER / _OF_FILES).glob("*/logs/*.log")]
    return max(logs, key=lambda log: log.stat().st_mtime).parent.parent if logs else chosen


def the_folder(context: typer.Context, option: typer.CallbackParam, given: Path) -> Path:
    """The folder that was given, else that of the one mesh that runs here. Raises `BadParameter` where several do."""
    if _is_given(context, option):
        return given
    found = folders()
    if len(found) > 1:
        raise typer.BadParameter(f"{len(found)} meshes run here, one is needed: {', '.join(map(str, found))}")
    return found[0] if found else given


def address_of(kind: str) -> Callable[[typer.Context, typer.CallbackParam, str], str]:
    """Makes an option's value: what was given, else where the service is that runs here, else the option's default."""

    def chosen(context: typer.Context, option: typer.CallbackParam, given: str) -> str:
        if _is_given(context, option):
            return given
        return _address(kind, the_folder(context, option, FOLDER)) or given

    return chosen


def _address(kind: str, folder: Path) -> str:
    """Of the front for the gateway, which may be Envoy; of the first replica of others."""
    listed = services(folder)
    named = listed[-1:] if kind == "gateway" else [s for s in listed if s["name"].partition("-")[0] == kind]
    return str(named[0]["address"]) if named else ""


def _is_given(context: typer.Context, option: typer.CallbackParam) -> bool:
    """On the command line, or by an environment variable."""
    source = context.get_parameter_source(option.name or "")
    return source is not None and source.name != "DEFAULT"


def is_held(folder: Path) -> bool:
    """Whether a mesh has this folder: it holds a lock on it for as long as it lives. A process id in a listing would
    not be enough: another process may have it by now."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    import fcntl  # where a folder can be opened there is one

    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: no mesh starts there
        return False
    finally:
        os.close(opened)
    return False
