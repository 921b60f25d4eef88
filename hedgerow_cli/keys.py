"""`hedgerow keys`: the API keys of tenants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow_cli import mesh_file, options
from hedgerow_cli.option_groups import with_options

if TYPE_CHECKING:
    from launcher.meshfile.keys import Key, KeysFile

keys = typer.Typer(help="Make, list and revoke the API keys of tenants.", no_args_is_help=True)


@dataclass(frozen=True)
class TenantsFile:
    """The group of options that name the file with tenants."""

    mesh: Annotated[
        Path | None,
        typer.Option("--mesh", metavar="FILE", help="The mesh file that names the tenants.  [default: mesh.yaml]"),
    ] = None
    tenants_file: Annotated[
        Path | None,
        typer.Option(
            "--tenants-file",
            metavar="FILE",
            help="In its place: a file as HEDGEROW_GATEWAY_TENANTS_FILE, YAML or JSON.",
        ),
    ] = None

    def opened(self) -> KeysFile:
        """Raises `KeysError` and `BadParameter`."""
        from launcher.meshfile.keys import KeysFile

        if self.mesh and self.tenants_file:
            raise typer.BadParameter("not together with --mesh: one file", param_hint="--tenants-file")
        if self.tenants_file:
            return KeysFile.of_tenants(self.tenants_file)
        if not self.mesh and not mesh_file.DEFAULT.exists():
            raise typer.BadParameter(f"{mesh_file.DEFAULT} is not here; name a file with --mesh or --tenants-file")
        return KeysFile.of_mesh(self.mesh or mesh_file.DEFAULT)


def _tenants(context: typer.Context, incomplete: str) -> list[str]:
    """For a shell that completes. A file that cannot be read completes nothing."""
    try:
        known = TenantsFile(context.params.get("mesh"), context.params.get("tenants_file")).opened().tenants()
    except (ImportError, ValueError, typer.BadParameter):
        return []
    return [name for name in known if name.startswith(incomplete)]


@keys.command()
@with_options(where=TenantsFile)
def create(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="A tenant of the file.", autocompletion=_tenants)],
    *,
    where: TenantsFile,
    new: Annotated[bool, typer.Option("--new", help="Add the tenant, if the file has none of this name.")] = False,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the key expires: a duration from now such as 12h, 30d or 6mo (units s, m, h, d, w, mo), or a "
            "time in UTC such as 2027-01-31 or 2027-01-31T18:00:00Z.  [default: never]",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Make an API key for a tenant, and print it once.

    The file gets only its SHA-256: a lost key cannot be recovered. One line of the file changes; comments and order
    stay. A running mesh follows the file. With --new and a first tenant, callers without a key are refused from then
    on. A key with --expires is refused from that time on; the file has the time beside its SHA-256.

    \b
    Examples:
      hedgerow keys create acme
      hedgerow keys create acme --expires 30d
      hedgerow keys create acme --new --mesh prod.yaml
      hedgerow keys create acme --tenants-file tenants.yaml --json | jq -r .key
    """
    import json

    with reported_keys(as_json):
        file = where.opened()
        key, made = file.create(tenant, new=new, expires=None if expires is None else _expiry(expires))
    if as_json:
        fields = {"tenant": tenant, "key": key, "id": made.id, "sha256": made.sha256, "file": str(file.path)}
        print(json.dumps({**fields, "expires": _written(made)}))
        return
    from hedgerow_cli.failures import notify

    print(key)
    until = f", and expires at {_written(made)}" if made.expires else ""
    notify(f"key {made.id} of {tenant} is in {file.path} as its SHA-256{until}; the key itself is not shown again")


@keys.command("list")
@with_options(where=TenantsFile)
def list_(*, where: TenantsFile, as_json: options.AsJson = False) -> None:
    """List the keys of all tenants: the id of each, which is the beginning of its SHA-256, its position in the file,
    and the time at which it expires.

    \b
    Examples:
      hedgerow keys list
      hedgerow keys list --json | jq -r '.keys[] | select(.expired) | .id'
      hedgerow keys list --json | jq -r '.keys[] | select(.tenant == "acme") | .id'
    """
    import json

    with reported_keys(as_json):
        file = where.opened()
        found, tenants = file.keys(), file.tenants()
    now = datetime.now(UTC)
    if as_json:
        rows = [
            {
                "tenant": key.tenant,
                "id": key.id,
                "sha256": key.sha256,
                "source": key.source,
                "name": key.name,
                "expires": _written(key),
                "expired": key.has_expired(now),
            }
            for key in found
        ]
        print(json.dumps({"file": str(file.path), "tenants": tenants, "keys": rows}))
        return
    for key in found:
        place = f"{key.source} {key.name}".rstrip()
        ends = f"  {'expired' if key.has_expired(now) else 'expires'} {_written(key)}" if key.expires else ""
        print(f"{key.id or 'not set':12}  {key.tenant:24}  {place}{ends}")
    for name in tenants:
        if name not in {key.tenant for key in found}:
            print(f"{'no key':12}  {name}")
    if not tenants:
        print(f"{file.path} has no tenants; add one with: hedgerow keys create NAME --new")


@keys.command()
@with_options(where=TenantsFile)
def revoke(
    key: Annotated[
        str,
        typer.Argument(metavar="ID", help="The key's id, or its first 6 digits; - reads the key itself from stdin."),
    ],
    *,
    where: TenantsFile,
    as_json: options.AsJson = False,
) -> None:
    """Revoke a key: remove its SHA-256 from the file. A running mesh follows the file.

    The only valid key of a tenant cannot be revoked: make another first. Revoke a key in a variable or a file of its
    own there.

    \b
    Examples:
      hedgerow keys revoke 3fa2c91b07de
      hedgerow keys revoke - < leaked-key.txt
    """
    import json
    import sys

    with reported_keys(as_json):
        from launcher.meshfile.keys import PREFIX, digest_of

        file = where.opened()
        given = sys.stdin.read().strip() if key == "-" else key
        gone = file.revoke(digest_of(given) if key == "-" or given.startswith(PREFIX) else given)
    if as_json:
        print(json.dumps({"tenant": gone.tenant, "id": gone.id, "sha256": gone.sha256, "file": str(file.path)}))
    else:
        print(f"key {gone.id} of {gone.tenant} is revoked in {file.path}")


def _expiry(given: str) -> datetime:
    from launcher.meshfile.expiry import expiry_after

    try:
        return expiry_after(given, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--expires") from None


def _written(key: Key) -> str | None:
    from launcher.meshfile.expiry import written

    return written(key.expires) if key.expires else None


@contextmanager
def reported_keys(as_json: bool) -> Iterator[None]:
    """Ends the command with one line, or one JSON object, where it cannot be done."""
    from hedgerow_cli.failures import fail, needs

    with needs("launcher", as_json):
        from launcher.meshfile.keys import KeysError

    try:
        yield
    except KeysError as error:
        fail(str(error), error.reason, as_json)
