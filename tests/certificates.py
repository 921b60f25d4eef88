"""Certificates for tests, and services that have one: folders as services read them, of a CA of the test's own."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hedgerow import Tls
from hedgerow.identities import IDENTITIES
from launcher.certificate_authority import Authority, make_authority, write_authority, write_identity
from launcher.processes import ServiceSpec, free_port
from tests.forked import ServiceProcess


class Certificates:
    """`folder/<identity>` for every identity, signed by `authority`."""

    def __init__(self, folder: Path):
        self.folder, self.authority = folder, make_authority()
        write_authority(folder, self.authority)
        for identity in IDENTITIES:
            self.renew(identity)

    def renew(
        self,
        identity: str,
        days: float = 1,
        now: datetime | None = None,
        by: Authority | None = None,
        trusting: bytes = b"",
    ) -> None:
        """Write a new certificate in place of the old one. `trusting`: CAs as PEM; only `authority` where not given."""
        issued = (by or self.authority).issue(identity, days, now=now)
        write_identity(self.folder / identity, trusting or self.authority.pem(), issued)

    def of(self, identity: str, service: str) -> Tls:
        """How `identity` calls `service`."""
        return Tls.from_folder(self.folder / identity, service)

    def expired(self, identity: str, service: str) -> Tls:
        """The same with a certificate that is over."""
        issued = self.authority.issue(identity, 1, now=datetime.now(UTC) - timedelta(days=2))
        return Tls(self.authority.pem(), issued.certificate, issued.key, f"{service}.hedgerow")

    def foreign(self, identity: str, service: str) -> Tls:
        """The same with a certificate of another CA, which knows this one."""
        issued = make_authority().issue(identity, 1)
        return Tls(self.authority.pem(), issued.certificate, issued.key, f"{service}.hedgerow")


def server_tls(folder: Path) -> ssl.SSLContext:
    """A server's side, with the identity in that folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


async def mutual(
    stack: AsyncExitStack, certificates: Certificates, folder: Path, service: str, address: str = "", **settings: str
) -> ServiceProcess:
    """`services.<service>` with its certificate, which serves; asked as the operator, and stopped with `stack`."""
    address, prefix = address or f"127.0.0.1:{free_port()}", f"HEDGEROW_{service.upper()}_"
    given = {"address": address, "tls_dir": str(certificates.folder / service), **settings}
    environment = {f"{prefix}{name.upper()}": value for name, value in given.items()}
    asked_by = certificates.of("operator", service)
    spec = ServiceSpec(service, f"services.{service}", address, environment, tls=asked_by)
    process = ServiceProcess(spec, folder / "logs")
    stack.push_async_callback(process.stop)
    await process.wait_serving()
    return process
