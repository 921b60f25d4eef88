"""`hedgerow certs`, and the certificates it makes."""

from __future__ import annotations

import json
import stat
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from typer.testing import CliRunner

from hedgerow.identities import IDENTITIES
from hedgerow_cli.app import app
from launcher.certificate_authority import ForeignAuthority, make_authority, read_authority, write_authority

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def certs(folder: Path, *arguments: str) -> Any:
    """The command's JSON output."""
    result = CliRunner().invoke(app, ["certs", "--dir", str(folder), "--json", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(folder: Path, *arguments: str) -> str:
    """The stderr of the failed command."""
    result = CliRunner().invoke(app, ["certs", "--dir", str(folder), *arguments])
    assert result.exit_code == 1, result.output
    return result.stderr


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names(certificate: x509.Certificate) -> list[Any]:
    return [name.value for name in certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_identity_gets_a_folder_as_services_read_them(tmp_path: Path) -> None:
    said = certs(tmp_path)
    assert said["ca"] == {"certificate": str(tmp_path / "ca.crt"), "new": True}
    assert [each["identity"] for each in said["identities"]] == list(IDENTITIES)
    for name in IDENTITIES:
        assert sorted(file.name for file in (tmp_path / name).iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
        assert (tmp_path / name / "ca.crt").read_bytes() == (tmp_path / "ca.crt").read_bytes()


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    certs(tmp_path)
    certs(tmp_path)  # also when they are replaced
    redis = tmp_path / "redis" / "tls.key"
    assert {mode(path) for path in (tmp_path / "ca.key", *tmp_path.glob("*/tls.key")) if path != redis} == {0o600}
    assert mode(redis) == 0o640  # its group's, too: it runs as another user


def test_redis_gets_a_password_and_the_cache_a_key_which_are_made_once(tmp_path: Path) -> None:
    assert certs(tmp_path)["secrets"] == []
    url = "rediss://redis.hedgerow:6379/0?ssl_ca_certs=/tls/ca.crt"
    files = {name: tmp_path / name for name in ("cache/redis.yaml", "router/redis.yaml", "gateway/redis.yaml")}
    said = certs(tmp_path, "--redis", url)
    config = tmp_path / "redis" / "redis.conf"
    assert said["secrets"] == [str(file) for file in (config, *files.values())]
    password = config.read_text().removeprefix("requirepass ").strip()
    settings = {name: yaml.safe_load(file.read_text()) for name, file in files.items()}
    assert len(password) == 64
    assert {each["redis_url"] for each in settings.values()} == {url.replace("//", f"//:{password}@")}
    assert len(b64decode(settings["cache/redis.yaml"].pop("encryption_key"))) == 32
    assert all(each.keys() == {"redis_url"} for each in settings.values())
    assert (mode(config), {mode(file) for file in files.values()}) == (0o640, {0o600})
    assert {mode(tmp_path / name) for name in ("redis.password", "cache.key")} == {0o600}
    before = [file.read_text() for file in (config, *files.values())]
    certs(tmp_path, "--redis", url)
    assert [file.read_text() for file in (config, *files.values())] == before
    certs(tmp_path / "other", "--redis", url)
    assert (tmp_path / "other" / "redis" / "redis.conf").read_text() != before[0]


def test_a_certificate_has_identity_hosts_and_usage() -> None:
    authority = make_authority(NOON)
    certificate = x509.load_pem_x509_certificate(authority.issue("gateway", 30, now=NOON).certificate)
    here = ["localhost", ip_address("127.0.0.1"), ip_address("::1")]
    assert names(certificate) == ["spiffe://hedgerow/gateway", "gateway.hedgerow", *here]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert certificate.not_valid_after_utc == NOON + timedelta(days=30)
    assert certificate.not_valid_before_utc == NOON - timedelta(minutes=5)
    certificate.verify_directly_issued_by(authority.certificate)
    constraints = authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0), "the CA may sign no other authorities"


def test_more_names_are_the_edges_alone(tmp_path: Path) -> None:
    certs(tmp_path, "--dns", "mesh.example", "--ip", "192.0.2.7", "--identity", "edge", "--identity", "gateway")
    assert {"mesh.example", ip_address("192.0.2.7")} <= set(names(read(tmp_path / "edge" / "tls.crt")))
    assert "mesh.example" not in names(read(tmp_path / "gateway" / "tls.crt"))
    assert not (tmp_path / "cache").exists()


def test_again_it_makes_new_certificates_under_the_same_authority(tmp_path: Path) -> None:
    certs(tmp_path)
    ca, before = (tmp_path / "ca.crt").read_bytes(), read(tmp_path / "router" / "tls.crt")
    said = certs(tmp_path, "--days", "7", "--renew")
    after = read(tmp_path / "router" / "tls.crt")
    assert not said["ca"]["new"]
    assert (tmp_path / "ca.crt").read_bytes() == ca
    assert after.serial_number != before.serial_number
    assert after.public_key() != before.public_key()
    after.verify_directly_issued_by(read(tmp_path / "ca.crt"))


def test_to_renew_there_must_be_an_authority(tmp_path: Path) -> None:
    assert "there is no CA in" in refusal(tmp_path / "new", "--renew")
    assert not (tmp_path / "new").exists()
    result = CliRunner().invoke(app, ["certs", "--dir", str(tmp_path / "new"), "--renew", "--json"])
    assert (result.exit_code, json.loads(result.stdout)["error"]["reason"]) == (1, "CERTS_NOT_MADE")


def test_another_issuers_authority_is_left_alone(tmp_path: Path) -> None:
    key = make_authority().key
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Acme Root")])
    foreign = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOON, NOON + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, make_authority().certificate.signature_hash_algorithm)
    )
    write_authority(tmp_path, type(make_authority())(foreign, key))
    before = (tmp_path / "ca.crt").read_bytes()
    assert "another CA: CN=Acme Root" in refusal(tmp_path)
    assert (tmp_path / "ca.crt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("half", ["ca.crt", "ca.key"])
def test_half_an_authority_is_left_alone(tmp_path: Path, half: str) -> None:
    certs(tmp_path)
    (tmp_path / half).unlink()
    assert f"half a CA: there is no {half}" in refusal(tmp_path)
    assert not (tmp_path / half).exists()


def test_a_key_of_another_authority_is_noticed(tmp_path: Path) -> None:
    write_authority(tmp_path, make_authority())
    certificate = (tmp_path / "ca.crt").read_bytes()
    write_authority(tmp_path, make_authority())
    (tmp_path / "ca.crt").write_bytes(certificate)
    with pytest.raises(ForeignAuthority, match="is not the key of"):
        read_authority(tmp_path)


def test_an_invalid_pem_is_no_authority(tmp_path: Path) -> None:
    write_authority(tmp_path, make_authority())
    (tmp_path / "ca.crt").write_text("hello")
    with pytest.raises(ForeignAuthority, match="cannot be used"):
        read_authority(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--days", "0"),
        ("--days", "4000"),
        ("--identity", "root"),
        ("--ip", "mesh.example"),
        ("--dns",),
        ("--redis", "redis.hedgerow:6379"),
        ("--redis", "redis://:secret@redis.hedgerow:6379"),
    ],
)
def test_wrong_use_exits_with_2_and_makes_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["certs", "--dir", str(tmp_path / "certs"), *arguments])
    assert result.exit_code == 2
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize("command", [["ask", "?"], ["chat"], ["classify", "a.png"], ["transcribe", "a.wav"]])
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--ca-file", "/nowhere.crt"], "tls.ca: a PEM file, got /nowhere.crt"),
        (["--tls-dir", "/nowhere"], "tls.ca: a PEM file, got /nowhere/ca.crt"),
        (["--tls-dir", "/nowhere", "--tls"], "its ca.crt is the authority"),
    ],
)
def test_tls_that_cannot_be_is_wrong_use(command: list[str], arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, [*command, *arguments], terminal_width=200)
    assert result.exit_code == 2
    assert problem in result.stderr
