"""TLS settings of a client."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Self

from hedgerow._errors import invalid
from hedgerow._options import Media
from hedgerow.identities import server_name_of


@dataclass(frozen=True, slots=True)
class Tls:
    """`Client("mesh.example:443", tls=Tls())`. Certificates and keys are PEM: as bytes, or as the path of a file.

    Files are read when the connection is opened. Raises `InvalidArgument` for a certificate without its key.
    """

    ca: Media | None = None  # the CA of the server's certificate; None: the authorities that gRPC knows
    certificate: Media | None = None  # the caller's own, if the server requires one
    key: Media | None = field(default=None, repr=False)
    server_name: str | None = None  # the name in the server's certificate; None: the target's host

    def __post_init__(self) -> None:
        if (self.certificate is None) is not (self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise invalid(f"tls.{missing}", "certificate and key together", "only one of them")

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str], service: str | None = None) -> Self:
        """Mutual TLS with the `ca.crt`, `tls.crt` and `tls.key` of a folder, as `hedgerow certs` makes them.

        `service` is the identity that must answer (`gateway`, `llm`, …); without it, the target's host must be in the
        certificate.
        """
        ca, certificate, key = (os.path.join(folder, name) for name in ("ca.crt", "tls.crt", "tls.key"))
        return cls(ca, certificate, key, server_name_of(service) if service else None)

    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """(CA, certificate, key). Raises `InvalidArgument` for a file that cannot be read."""
        return _read("ca", self.ca), _read("certificate", self.certificate), _read("key", self.key)


def _read(name: str, given: Media | None) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    try:
        with open(given, "rb") as file:
            return file.read()
    except OSError as error:
        raise invalid(f"tls.{name}", "a PEM file", os.fspath(given), error.strerror or "") from None
