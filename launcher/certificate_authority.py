"""A small certificate authority for development: one CA, and a certificate for each identity of a mesh.

A folder holds `ca.crt` and `ca.key`, and for each identity a folder of the three files that services read: `tls.crt`,
`tls.key`, `ca.crt`. Keys are EC P-256. A certificate has its identity as a SPIFFE URI (`spiffe://hedgerow/gateway`;
SPIFFE X.509-SVID) and as a DNS name (`gateway.hedgerow`), which is what callers check.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hedgerow.identities import REDIS, server_name_of, uri_of

# The identities of a mesh. `edge` is what comes in from outside, `operator` people and probes.
_CA_NAME = "Hedgerow development CA"
_CA_DAYS = 3_650
_SKEW = timedelta(minutes=5)  # clocks differ
_HERE = ("localhost", "127.0.0.1", "::1")


class ForeignAuthority(Exception):
    """The folder holds a CA that is not ours, or only half of one. It is left as it is."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    uri: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that may sign."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue(self, identity: str, days: float, names: Sequence[str] = (), now: datetime | None = None) -> Issued:
        """A certificate for `identity`, good for `days` from `now` on.

        It holds on this machine (localhost) too, and for `names`: more host names and IP addresses.
        """
        now, key, uri = now or datetime.now(UTC), _new_key(), uri_of(identity)
        until = now + timedelta(days=days)
        alternatives: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(uri),
            x509.DNSName(server_name_of(identity)),
            *map(_general, dict.fromkeys((*_HERE, *names))),
        ]
        usage = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = (
            _builder(_name(identity), self.certificate.subject, key, now, until)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        return Issued(_pem(builder.sign(self.key, hashes.SHA256())), _key_pem(key), uri, until)

    def pem(self) -> bytes:
        """The CA's certificate as PEM."""
        return _pem(self.certificate)


def make_authority(now: datetime | None = None) -> Authority:
    """A new CA, for ten years."""
    now, key, name = now or datetime.now(UTC), _new_key(), _name(_CA_NAME)
    builder = (
        _builder(name, name, key, now, now + timedelta(days=_CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def read_authority(folder: Path) -> Authority | None:
    """The CA in `folder`; None where there is none. Raises `ForeignAuthority` for one that `make_authority` has not
    made, or without its key."""
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if not certificate.exists() and not key.exists():
        return None
    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
        loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
        read.verify_directly_issued_by(read)
    except FileNotFoundError as error:
        raise ForeignAuthority(f"{folder} holds half a CA: there is no {Path(error.filename).name}") from None
    except (ValueError, TypeError, InvalidSignature) as error:
        raise ForeignAuthority(
            f"{folder} holds a CA that cannot be used: {error or 'it did not sign itself'}"
        ) from None
    if read.subject != _name(_CA_NAME) or not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ForeignAuthority(f"{folder} holds another CA: {read.subject.rfc4514_string()}")
    if read.public_key() != loaded.public_key():
        raise ForeignAuthority(f"{folder}/ca.key is not the key of {folder}/ca.crt")
    return Authority(read, loaded)


def open_authority(folder: Path) -> tuple[Authority, bool]:
    """The CA in `folder`, and whether it is new: it is made where there is none. Raises `ForeignAuthority`."""
    if authority := read_authority(folder):
        return authority, False
    authority = make_authority()
    write_authority(folder, authority)
    return authority, True


def write_authority(folder: Path, authority: Authority) -> None:
    """Put the CA into `folder`, for `read_authority`; its key is for the owner's eyes alone."""
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "ca.key", _key_pem(authority.key), 0o600)
    write_file(folder / "ca.crt", authority.pem())


def write_identity(folder: Path, ca: bytes, issued: Issued) -> None:
    """Put the three files into `folder`. Each is replaced at once; the certificate comes last, because it is what a
    reader looks for. The key is its owner's alone; Redis' is also its group's, because Redis runs as another user."""
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "ca.crt", ca)
    write_file(folder / "tls.key", issued.key, 0o640 if issued.uri == uri_of(REDIS) else 0o600)
    write_file(folder / "tls.crt", issued.certificate)


def write_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Put a file there, or a new one in the place of the old one, at once."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.unlink(missing_ok=True)  # with the mode that it had
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    unfinished.replace(path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since - _SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general(name: str) -> x509.GeneralName:
    try:
        address: IPv4Address | IPv6Address = ip_address(name)
    except ValueError:
        return x509.DNSName(name)
    return x509.IPAddress(address)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
