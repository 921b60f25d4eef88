"""`hedgerow check`: checks a mesh file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow_cli import mesh_file, options, running

if TYPE_CHECKING:
    from launcher.meshfile.planning import MeshPlan


def check(
    file: mesh_file.MeshFile = mesh_file.DEFAULT,
    state_dir: options.OwnStateDir = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of mesh files, for editors, and check nothing.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check a mesh file completely, without starting anything.

    All problems are listed, with line and column: unknown keys, values beyond their limits, variables that are not set,
    missing folders, and settings that a service refuses. Exits with 2 if there is a problem, and with 1 if packages
    that the file needs are not installed or the check itself failed. Otherwise prints what "hedgerow up" would start,
    and the models of the catalogue that it would pull; nothing is pulled. Expired API keys are listed; a file with them
    is valid.

    \b
    Examples:
      hedgerow check
      hedgerow check mesh.yaml --json | jq -r '.problems[].message'
      hedgerow check --schema > mesh.schema.json
    """
    import asyncio
    import json

    from hedgerow_cli.failures import fail, needs

    if schema:
        with needs("launcher", as_json):
            from launcher.meshfile.json_schema import SHIPPED

        print(SHIPPED.read_text("utf-8"), end="")
        return
    with mesh_file.checked(as_json):
        from launcher.mesh import MeshError
        from launcher.meshfile.planning import plan
        from launcher.meshfile.preflight import refuse_missing

        planned = asyncio.run(plan(file, state_dir or running.state_of(file)))
    try:
        refuse_missing(str(file), planned.file)
    except MeshError as error:
        fail(str(error), "NOT_INSTALLED", as_json)
    with mesh_file.checked(as_json):
        checked = _describe(file, planned)
    if as_json:
        print(json.dumps(checked))
    else:
        _print(checked)


def _describe(file: Path, planned: MeshPlan) -> Mapping[str, Any]:
    """The services that "hedgerow up" would start, the models that it would pull, and the keys that have expired."""
    from datetime import UTC, datetime

    from launcher.meshfile.catalog import missing_models
    from launcher.meshfile.expiry import written
    from launcher.meshfile.keys import KeysError, KeysFile
    from launcher.meshfile.marks import read_marked
    from launcher.meshfile.problems import BadMeshFile

    now = datetime.now(UTC)
    try:
        keys = KeysFile.of_mesh(file).checked() if planned.file.tenants or planned.file.tenants_file else []
    except KeysError as error:
        where = read_marked(planned.text).problem(("tenants_file",), str(error))
        raise BadMeshFile(str(file), [where]) from None
    return {
        "file": str(file),
        "services": [{"name": spec.name, "address": spec.address} for spec in planned.specs],
        "pulls": [
            {"name": each.name, "download_bytes": each.sources[-1].bytes} for each in missing_models(planned.file)
        ],
        "expired_keys": [
            {"tenant": key.tenant, "id": key.id, "expires": written(key.expires)}
            for key in keys
            if key.expires and key.has_expired(now)
        ],
        "problems": [],
    }


def _print(checked: Mapping[str, Any]) -> None:
    import shlex

    for each in checked["services"]:
        print(f"{each['name']:24} {each['address']}")
    for each in checked["pulls"]:
        print(f"{each['name']:24} would be pulled first: {each['download_bytes'] / 1e6:.0f} MB")
    for each in checked["expired_keys"]:
        print(f"{each['tenant']:24} warning: API key {each['id']} expired at {each['expires']}")
    print(f"{checked['file']} can be used: hedgerow up {shlex.quote(checked['file'])}")
