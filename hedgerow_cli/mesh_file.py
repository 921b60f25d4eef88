"""Argument and errors of the commands that read a mesh file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from launcher.meshfile.problems import BadMeshFile

MeshFile = Annotated[Path, typer.Argument(metavar="FILE", help="The mesh file.")]
DEFAULT = Path("mesh.yaml")


def here() -> Path | None:
    """The mesh file of this folder."""
    return DEFAULT if DEFAULT.is_file() else None


@contextmanager
def checked(as_json: bool = False) -> Iterator[None]:
    """Ends the command with 2, and all that is wrong, when the mesh file inside cannot be used; with 1 when that could
    not be found out."""
    from hedgerow_cli.failures import fail, needs

    with needs("launcher", as_json):
        from launcher.mesh import MeshError
        from launcher.meshfile.problems import BadMeshFile

    try:
        yield
    except BadMeshFile as error:
        _print_problems(error, as_json)
        raise typer.Exit(2) from None
    except MeshError as error:
        fail(str(error), "NOT_CHECKED", as_json)


def _print_problems(error: BadMeshFile, as_json: bool) -> None:
    import json
    import sys
    from dataclasses import asdict

    if as_json:
        message = f"{error.file}: {len(error.problems)} to fix"
        summary = {"code": "INVALID_ARGUMENT", "reason": "BAD_MESH_FILE", "message": message}
        print(json.dumps({"error": summary, "problems": [asdict(problem) for problem in error.problems]}))
    else:
        print(error, file=sys.stderr)
