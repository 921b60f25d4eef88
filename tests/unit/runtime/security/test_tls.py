"""A folder of certificates: what is taken up, and what is left alone."""

from __future__ import annotations

import asyncio
import logging
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import grpc
import pytest
from prometheus_client import REGISTRY

from launcher.certificate_authority import make_authority, write_identity
from services.runtime.rpc.standing.channel import StandingChannel
from services.runtime.security import tls
from services.runtime.security.tls import BadTls, Folder, plain
from services.runtime.security.tls import dial as dialled
from tests.certificates import Certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def followed(folder: Folder) -> bool:
    """Look twice: a change is noticed at one look and read at the next. Returns whether the credentials changed."""
    return any([await folder.look(), await folder.look()])


def test_a_tls_folder_has_an_identity_and_its_expiry(certificates: Certificates) -> None:
    current = Folder(certificates.folder / "router").current
    assert current.identity == "router"
    left = current.expires - datetime.now(UTC).timestamp()
    assert timedelta(hours=23) < timedelta(seconds=left) < timedelta(hours=25)
    assert REGISTRY.get_sample_value("hedgerow_certificate_expires_seconds", {"identity": "router"}) == current.expires


def test_a_private_key_is_not_in_the_repr(certificates: Certificates) -> None:
    assert "PRIVATE" not in repr(Folder(certificates.folder / "router").current)


async def test_new_certificates_are_taken_up(certificates: Certificates) -> None:
    folder = Folder(certificates.folder / "router")
    before = folder.current
    assert not await followed(folder)
    certificates.renew("router")
    assert await followed(folder)
    assert folder.current.certificate != before.certificate
    assert folder.current.key != before.key


async def test_a_folder_being_written_is_not_read(certificates: Certificates) -> None:
    folder = Folder(certificates.folder / "router")
    before = folder.current
    for _ in range(3):
        certificates.renew("router")
        assert not await folder.look()
    assert folder.current is before
    assert await folder.look()


HALVES = ["tls.crt", "tls.key"]


@pytest.mark.parametrize("name", HALVES)
async def test_half_of_a_new_pair_keeps_the_old_one(
    certificates: Certificates, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(certificates.folder / "router")
    before, fresh = folder.current, certificates.authority.issue("router", 1)
    (folder.path / name).write_bytes(fresh.certificate if name == "tls.crt" else fresh.key)
    with caplog.at_level(logging.ERROR):
        assert not await followed(folder)
    assert folder.current is before
    assert "key values mismatch; the certificate stays as it was" in caplog.text
    (folder.path / "tls.crt").write_bytes(fresh.certificate)
    (folder.path / "tls.key").write_bytes(fresh.key)
    assert await followed(folder)
    assert folder.current.certificate == fresh.certificate


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nMIIB", b"\xff\xfe not PEM"])
async def test_a_file_that_is_gone_cut_off_or_no_pem_keeps_what_there_was(
    certificates: Certificates, name: str, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(certificates.folder / "router")
    before = folder.current
    if content is None:
        (folder.path / name).unlink()
    else:
        (folder.path / name).write_bytes(content)
    with caplog.at_level(logging.ERROR):
        assert not await followed(folder)
        assert not await followed(folder)  # said once, not at every look
    assert folder.current is before
    assert caplog.text.count("stays as it was") == 1


async def test_a_certificate_of_another_authority_or_one_that_is_over_keeps_what_there_was(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(certificates.folder / "router")
    before = folder.current
    certificates.renew("router", by=make_authority())
    assert not await followed(folder)
    certificates.renew("router", now=datetime.now(UTC) - timedelta(days=2))
    assert not await followed(folder)
    assert folder.current is before
    assert "unable to get local issuer certificate" in caplog.text
    assert "certificate has expired" in caplog.text


async def test_the_certificate_of_another_identity_keeps_what_there_was(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(certificates.folder / "router")
    before = folder.current
    write_identity(folder.path, certificates.authority.pem(), certificates.authority.issue("cache", 1))
    assert not await followed(folder)
    assert folder.current is before
    assert "a certificate of router, got one of cache; the certificate stays as it was" in caplog.text


async def test_certificates_are_followed_on_after_a_moment_without_threads(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    folder = Folder(certificates.folder / "router", lambda: now)
    certificates.renew("router")
    with monkeypatch.context() as full:
        full.setattr(asyncio, "to_thread", Mock(side_effect=RuntimeError("can't start new thread")))
        assert not await followed(folder)
    now = 60.0
    assert await folder.look()


async def test_a_certificate_that_is_not_valid_yet_is_tried_again(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    folder = Folder(certificates.folder / "router", lambda: now)
    before = folder.current
    with monkeypatch.context() as early:
        early.setattr(tls, "_test_handshake", Mock(side_effect=ValueError("certificate is not yet valid")))
        certificates.renew("router")
        assert not await followed(folder)
    assert not await followed(folder)
    now = 60.0
    assert await folder.look()
    assert folder.current.certificate != before.certificate


def test_at_the_start_a_folder_that_cannot_be_used_says_why(certificates: Certificates) -> None:
    certificates.renew("cache", now=datetime.now(UTC) - timedelta(days=2))
    (certificates.folder / "llm" / "tls.key").unlink()
    for name, why in (("cache", "certificate has expired"), ("llm", "No such file"), ("nobody", "No such file")):
        with pytest.raises(BadTls, match=why):
            Folder(certificates.folder / name)


def test_a_key_with_a_password_is_refused_instead_of_asked_for(certificates: Certificates) -> None:
    from cryptography.hazmat.primitives import serialization

    path = certificates.folder / "router" / "tls.key"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"sesame")
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    with pytest.raises(BadTls, match="without a password"):
        Folder(path.parent)


async def test_without_a_folder_it_is_plain_text() -> None:
    async with dialled(None) as dial:
        assert dial is plain


@pytest.mark.parametrize(
    ("target", "service", "streams", "stands"),
    [
        ("127.0.0.1:1", "llm", True, True),
        ("unix:/tmp/none", "cache", True, True),
        ("127.0.0.1:1", "llm", False, False),
        ("ipv4:127.0.0.1:1,127.0.0.1:2", "llm", True, False),
        ("127.0.0.1:1", "a tool", True, False),
    ],
)
async def test_calls_travel_on_a_stream_to_one_server_of_ours(
    target: str, service: str, streams: bool, stands: bool
) -> None:
    async with dialled(None, streams=streams) as dial, dial(target, service) as channel:
        assert isinstance(channel, StandingChannel) is stands


async def test_no_proxy_of_the_environment_gets_calls_between_services(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for service in ("cache", "llm"):
            async with plain("service.invalid:1", service) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.unary_unary("/a/b")(b"", timeout=5)
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


@pytest.mark.parametrize(("days", "due_h"), [(30, 7 * 24), (365, 7 * 24), (3, 18), (1 / 24, 0.25)])
def test_a_certificate_is_due_a_week_or_a_quarter_of_its_lifetime_before_it_expires(
    certificates: Certificates, days: float, due_h: float
) -> None:
    """Those of cert-manager in the chart live for three days, and are replaced after half of that."""
    certificates.renew("router", days)
    current = Folder(certificates.folder / "router").current
    assert (current.expires - current.due) / 3_600 == pytest.approx(due_h, abs=0.05)
    assert REGISTRY.get_sample_value("hedgerow_certificate_due_seconds", {"identity": "router"}) == current.due


@pytest.mark.parametrize(("left", "level"), [(0.3, "INFO"), (0.2, "WARNING")])
async def test_a_certificate_that_is_due_is_a_warning(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, left: float, level: str
) -> None:
    certificates.renew("router", 3, now=datetime.now(UTC) - timedelta(days=3 * (1 - left)))
    caplog.set_level(logging.INFO, "services.runtime.security.tls")
    following = asyncio.create_task(Folder(certificates.folder / "router").follow())
    await asyncio.sleep(0)
    following.cancel()
    await asyncio.wait([following])
    (record,) = caplog.records
    assert record.levelname == level
    assert record.message.startswith("certificate of router: good until ")
