"""The meshes that run from this folder: where their state is, and where their services are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

FOLDER, LISTING = Path(".hedgerow"), "mesh.json"
_OF_FILES = "meshes"
_SAID = {"name": str, "address": str, "pid": int}  # of each service


def state_of(file: Path | None) -> Path:
    """Where the state of a mesh lies: of a mesh file beside it, under its name; of the demo's in this folder."""
    return file.parent / FOLDER / _OF_FILES / file.stem if file else FOLDER


def folders() -> list[Path]:
    """The state folders of the meshes that run from this folder."""
    return [each for each in [FOLDER, *sorted((FOLDER / _OF_FILES).glob("*"))] if _runs(each)]


def services(folder: Path) -> list[dict[str, Any]]:
    """What a mesh says of its services; nothing where none does, or not in full. The last one takes the calls."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found: list[dict[str, Any]] = json.loads((folder / LISTING).read_text())["services"]
        if all(isinstance(each[name], kind) for each in found for name, kind in _SAID.items()):
            return found
    return []


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
    listed = services(folder) if _runs(folder) else []
    named = listed[-1:] if kind == "gateway" else [s for s in listed if s["name"].partition("-")[0] == kind]
    return str(named[0]["address"]) if named else ""


def _is_given(context: typer.Context, option: typer.CallbackParam) -> bool:
    """On the command line, or by an environment variable."""
    source = context.get_parameter_source(option.name or "")
    return source is not None and source.name != "DEFAULT"


def _runs(folder: Path) -> bool:
    """A mesh that was killed leaves its listing behind."""
    return any(_lives(service["pid"]) for service in services(folder))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0
