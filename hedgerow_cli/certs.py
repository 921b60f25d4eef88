"""`hedgerow certs`: certificates for the services of a mesh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow_cli import options

if TYPE_CHECKING:
    from launcher.certificate_authority import Authority


def certs(
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Folder of the CA and the certificates.")],
    days: Annotated[float, typer.Option(metavar="N", help="Validity of the certificates, in days.")] = 30,
    identity: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this identity: gateway, cache, …; may be given several times."),
    ] = None,
    dns: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="One more host name in the edge's certificate; may be given several times."),
    ] = None,
    ip: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="One more IP address in the edge's certificate; likewise."),
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Renew under the existing CA; fail if there is none.")] = False,
    redis: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Also a password for the Redis at this URL, and a key that encrypts the cache's entries.",
        ),
    ] = "",
    as_json: options.AsJson = False,
) -> None:
    """Make the certificates with which the services of a mesh authenticate each other.

    For development and tests: the CA's key is stored beside the certificates, readable for its owner only. For
    production use cert-manager or SPIRE; a service needs the same files. DIR gets ca.crt and ca.key, and for each
    identity a folder with tls.crt, tls.key and ca.crt, for HEDGEROW_<SERVICE>_TLS_DIR. "edge" is the entry for callers
    from outside, "operator" is you: pass its folder as --tls-dir to status, ask and other commands.

    With the same DIR again, all certificates are renewed under the same CA; running services load them without a
    restart. A CA from elsewhere is never changed.

    With --redis, DIR also gets a password and a key, which later runs keep: redis.password and cache.key.
    redis/redis.conf has the password for redis-server; redis.yaml in the folders of cache, router and gateway is for
    HEDGEROW_<SERVICE>_CONFIG.

    \b
    Examples:
      hedgerow certs --dir certs
      hedgerow certs --dir certs --renew --identity gateway
      hedgerow certs --dir certs --identity edge --dns mesh.example --ip 192.0.2.7
      hedgerow certs --dir certs --redis "rediss://redis.hedgerow:6379/0?ssl_ca_certs=/tls/ca.crt"
      HEDGEROW_ROUTER_TLS_DIR=certs/router python -m services.router
      hedgerow status --tls-dir certs/operator
    """
    import json

    from hedgerow_cli.failures import fail, needs

    with needs("launcher", as_json):
        from hedgerow.identities import IDENTITIES
        from launcher.certificate_authority import ForeignAuthority, open_authority, read_authority
        from launcher.redis_secrets import write_redis_secrets

    wanted = identity or list(IDENTITIES)
    _refuse_wrong_use(days, wanted, dns or [], ip or [], redis)
    try:
        if renew and not read_authority(folder):
            raise FileNotFoundError(f"there is no CA in {folder}; leave --renew out to make one")
        authority, is_new = open_authority(folder)
        made = [_make(authority, folder, name, days, [*(dns or []), *(ip or [])]) for name in wanted]
        shared = [str(file) for file in write_redis_secrets(folder, redis)] if redis else []
    except (ForeignAuthority, OSError) as error:
        fail(str(error), "CERTS_NOT_MADE", as_json)
    if as_json:
        ca = {"certificate": str(folder / "ca.crt"), "new": is_new}
        print(json.dumps({"ca": ca, "identities": made, "secrets": shared}))
    else:
        _print(folder, is_new, made, shared)


def _print(folder: Path, is_new: bool, identities: list[dict[str, str]], secrets: list[str]) -> None:
    print(f"{'made' if is_new else 'kept'}  {folder / 'ca.crt'}")
    for each in identities:
        print(f"made  {each['folder']}  {each['uri']}  until {each['until']}")
    for file in secrets:
        print(f"made  {file}")


def _refuse_wrong_use(days: float, wanted: list[str], hosts: list[str], addresses: list[str], redis: str) -> None:
    from ipaddress import ip_address

    from hedgerow.identities import IDENTITIES
    from launcher.redis_secrets import url_with

    if not 0 < days <= 3_650:
        raise typer.BadParameter(f"more than 0, at most 3650, got {days:g}", param_hint="--days")
    for name in wanted:
        if name not in IDENTITIES:
            raise typer.BadParameter(f"one of {', '.join(IDENTITIES)}, got {name}", param_hint="--identity")
    for host in hosts:
        if not host.isascii():
            raise typer.BadParameter(
                f"a host name in ASCII, such as xn--bcher-kva.example, got {host}", param_hint="--dns"
            )
    for address in addresses:
        try:
            ip_address(address)
        except ValueError:
            raise typer.BadParameter(f"an IP address, got {address}", param_hint="--ip") from None
    try:
        url_with("", redis or "redis://none")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--redis") from None


def _make(authority: Authority, folder: Path, identity: str, days: float, names: list[str]) -> dict[str, str]:
    """Write one identity's folder; its description for the output."""
    from launcher.certificate_authority import write_identity

    issued = authority.issue(identity, days, names if identity == "edge" else ())
    write_identity(folder / identity, authority.pem(), issued)
    return {
        "identity": identity,
        "uri": issued.uri,
        "folder": str(folder / identity),
        "until": issued.until.isoformat(timespec="seconds"),
    }
