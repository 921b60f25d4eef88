"""The identity of a process: certificates from a folder, which are reloaded when they change.

The folder has `tls.crt`, `tls.key` and `ca.crt`, as cert-manager writes them into a secret and `hedgerow certs` into a
folder. New files are tested before use: an in-memory TLS handshake of the certificate with itself fails for a key of
another certificate, another CA, or an expired certificate. So a half-written pair never replaces a working one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import grpc
from prometheus_client import Gauge

from hedgerow import Tls
from hedgerow.channel import open_channel
from hedgerow.identities import SERVICES, identity_of, server_name_of
from services.runtime.deadline import Clock
from services.runtime.file_changes import FileChanges
from services.runtime.limits import MODEL_MESSAGE_BYTES
from services.runtime.rpc.reloading_channel import ReloadingChannel
from services.runtime.rpc.standing.channel import StandingChannel

_NAMES = ("tls.crt", "tls.key", "ca.crt")
_POLL_S, _AGAIN_S = 0.5, 60.0
_DUE_S, _DUE_SHARE = 7 * 86_400, 0.25  # of its lifetime: the shorter of the two before it expires
_REMIND_S = 3_600
_LONG_MESSAGES = (("grpc.max_send_message_length", MODEL_MESSAGE_BYTES),)
_NO_PROXY = (("grpc.enable_http_proxy", 0),)  # between our services: `http_proxy` and the like are for providers
# For a service of another team, such as a tool: by default a gRPC server treats more than one ping in five minutes as
# abuse, and closes the connection with its calls.
_NO_PINGS = (("grpc.keepalive_time_ms", 2**31 - 1),)
_EXPIRES = Gauge(
    "hedgerow_certificate_expires_seconds", "When the process's certificate expires, in Unix time.", ["identity"]
)
_DUE = Gauge(
    "hedgerow_certificate_due_seconds",
    "When the process's certificate should have been replaced, in Unix time: a week, or a quarter of its lifetime, "
    "before it expires.",
    ["identity"],
)
_log = logging.getLogger(__name__)


class BadTls(ValueError):
    """The folder cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A certificate with its key, and the CA of all certificates, as PEM. They match."""

    certificate: bytes
    key: bytes = field(repr=False)
    ca: bytes
    identity: str  # of `spiffe://hedgerow/<identity>`; the whole URI for another trust domain, empty without a URI
    expires: float  # Unix time
    due: float  # Unix time: when another one should have taken its place

    def server(self) -> grpc.ServerCertificateConfiguration:
        """The configuration of a server that requires certificates of its callers."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.ca)

    def client(self, service: str) -> Tls:
        """The settings of a caller of `service`, which verifies that the peer has this identity."""
        return Tls(self.ca, self.certificate, self.key, server_name_of(service))


class Dial(Protocol):
    """Opens a channel to `target` (`host:port` or `xds:///name`), and verifies that its processes have the identity
    `service`."""

    def __call__(self, target: str, service: str) -> grpc.aio.Channel: ...


Dialing = Callable[..., AbstractAsyncContextManager[Dial]]  # as `dial`


def plain(target: str, service: str) -> grpc.aio.Channel:
    """`Dial` without TLS."""
    return _open(target, service)


def _open(target: str, service: str, tls: Tls | None = None, *, streams: bool = True) -> grpc.aio.Channel:
    """A channel to `target`. With `streams` the calls to a service of ours travel on a standing stream, unless gRPC
    balances the calls to this target, by xDS or over a list of addresses: a stream stays with one server."""
    channel = open_channel(target, _options(service), tls)
    balanced = target.startswith("xds:") or "," in target
    return StandingChannel(channel, service) if streams and service in SERVICES and not balanced else channel


def _options(service: str) -> tuple[tuple[str, int], ...]:
    """Channel options for `service`, besides those of all channels."""
    if service not in SERVICES:
        return _NO_PINGS
    return (*_NO_PROXY, *_LONG_MESSAGES) if service == "llm" else _NO_PROXY


@asynccontextmanager
async def dial(tls_dir: Path | None, *, streams: bool = True) -> AsyncIterator[Dial]:
    """`Dial` with mutual TLS and the certificates in `tls_dir`, reloaded when they change; `plain` without a folder.
    `streams`: whether calls may travel on standing streams (`rpc/standing`).

    Raises `BadTls` if they cannot be used.
    """
    if tls_dir is None:
        yield plain if streams else partial(_open, streams=False)
        return
    mutual = Mutual(Folder(tls_dir), streams=streams)
    following = asyncio.create_task(mutual.run())
    try:
        yield mutual
    finally:
        following.cancel()
        await asyncio.wait({following})


class Mutual:
    """`Dial` with the certificates of a folder. `run` must be running, so that channels get new certificates."""

    def __init__(self, folder: Folder, *, streams: bool = True):
        self._folder, self._streams = folder, streams
        self._open: set[ReloadingChannel] = set()

    def __call__(self, target: str, service: str) -> grpc.aio.Channel:
        channel = ReloadingChannel(partial(self._connect, target, service), self._open.discard)
        self._open.add(channel)
        return channel

    def _connect(self, target: str, service: str) -> grpc.aio.Channel:
        return _open(target, service, self._folder.current.client(service), streams=self._streams)

    async def run(self) -> None:
        """Renew the channels when the certificates change, until cancelled."""
        async for _ in self._folder.changes():
            for done in await asyncio.gather(*(each.renew() for each in self._open), return_exceptions=True):
                if isinstance(done, Exception):
                    _log.error("a channel keeps its old certificate: %r", done)


class Folder:
    """The credentials in a folder. `current` has the last matching files. Raises `BadTls` at once if there are none."""

    def __init__(self, path: Path, clock: Clock = time.monotonic):
        self.path, self._clock = path, clock
        self._again_at = math.inf  # to read files that could not be used
        self._stamps = FileChanges(*(path / name for name in _NAMES))
        self.current = self._load()

    async def changes(self) -> AsyncIterator[Credentials]:
        """`current` each time it changes. Never ends."""
        while True:
            await asyncio.sleep(_POLL_S)
            if await self.look():
                yield self.current

    async def follow(self) -> None:
        """Update `current` and log each change, and every hour a certificate that is due, until cancelled."""
        self._log_certificate()
        while True:
            await asyncio.sleep(_POLL_S)
            if await self.look() or (self._is_due and time.time() >= self._logged_at + _REMIND_S):
                self._log_certificate()

    @property
    def _is_due(self) -> bool:
        return time.time() >= self.current.due

    def _log_certificate(self) -> None:
        self._logged_at = time.time()
        until = datetime.fromtimestamp(self.current.expires, UTC).isoformat(timespec="seconds")
        level = logging.WARNING if self._is_due else logging.INFO
        _log.log(level, "certificate of %s: good until %s", self.current.identity or "no identity", until)

    async def look(self) -> bool:
        """Read the folder again if it has changed, and after a minute if it cannot be used: a certificate may become
        valid only then, where clocks differ. Returns whether `current` changed."""
        if not self._stamps.changed() and self._clock() < self._again_at:
            return False
        before, self._again_at = self.current, math.inf
        try:
            self.current = await asyncio.to_thread(self._load, before.identity)
        except (BadTls, RuntimeError) as error:  # the latter: no further thread on this machine, for now
            self._again_at = self._clock() + _AGAIN_S
            _log.error("%s; the certificate stays as it was", error)
        return self.current != before

    def _load(self, before: str = "") -> Credentials:
        """The credentials in the files. Raises `BadTls`, also for another identity than the one `before`, for which
        peers ask."""
        files = [self.path / name for name in _NAMES]
        try:
            certificate, key, ca = content = [file.read_bytes() for file in files]
            known = _test_handshake(*files)
            if content != [file.read_bytes() for file in files]:
                raise ValueError("is being written")
            if before and (identity := _identity(known)) != before:
                raise ValueError(f"a certificate of {before}, got one of {identity or 'no identity'}")
        except (OSError, ValueError) as error:  # ssl's errors are OSErrors
            raise BadTls(f"tls_dir: {self.path}: {_reason(error)}") from None
        begins, expires = (ssl.cert_time_to_seconds(known[name]) for name in ("notBefore", "notAfter"))
        due = expires - min(_DUE_S, _DUE_SHARE * (expires - begins))
        loaded = Credentials(certificate, key, ca, _identity(known), expires, due)
        _EXPIRES.labels(loaded.identity).set(loaded.expires)
        _DUE.labels(loaded.identity).set(loaded.due)
        return loaded


def server_credentials(folder: Folder) -> grpc.ServerCredentials:
    """For a server whose callers must have a certificate of the same CA. Every handshake uses the current
    certificate."""
    given = folder.current

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        if given is folder.current:
            return None
        given = folder.current
        return given.server()

    # None is allowed, and means no change; the type stubs lack that.
    return grpc.dynamic_ssl_server_credentials(given.server(), fetch, True)  # type: ignore[arg-type]


def server_context(folder: Folder) -> ssl.SSLContext:
    """The same for a server of HTTP/1.1, with the present files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load_into(context, *(folder.path / name for name in _NAMES))
    return context


def caller_in(certificate: dict[str, Any] | None) -> str:
    """The identity in a caller's certificate, as `ssl` returns it; empty without a certificate."""
    return _identity(certificate or {})


def _load_into(context: ssl.SSLContext, certificate: Path, key: Path, ca: Path) -> None:
    """Load the certificate into `context`, and require certificates of the same CA from peers."""
    context.load_cert_chain(certificate, key, password=_no_password)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED


def _test_handshake(certificate: Path, key: Path, ca: Path) -> dict[str, Any]:
    """Run an in-memory handshake of a server and a client with these files; returns the server's certificate."""
    server, client = (ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    client.check_hostname = False  # there is no target, and so no host name
    for context in (server, client):
        _load_into(context, certificate, key, ca)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    calling, called = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for side in (calling, called) * 3:
        with suppress(ssl.SSLWantReadError):  # the other side's turn
            side.do_handshake()
    if not (calling.getpeercert() and called.getpeercert()):
        raise ValueError("the certificate fails a handshake with itself")
    return dict(calling.getpeercert() or {})


def _no_password() -> bytes:
    """Refuse a key with a password, instead of asking for it at the terminal."""
    raise ValueError("tls.key: without a password, got one that needs it")


def _identity(certificate: dict[str, Any]) -> str:
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    return identity_of(uris[0]) if len(uris) == 1 else ""


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).lower().replace("_", " ")
    return " ".join(str(error).split())
