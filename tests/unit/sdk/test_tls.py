from __future__ import annotations

from pathlib import Path

import pytest

import hedgerow
from hedgerow import InvalidArgument, Tls


def test_bytes_are_pem_and_anything_else_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"a CA")
    assert Tls().pem() == (None, None, None)
    assert Tls(b"pem", b"certificate", b"key").pem() == (b"pem", b"certificate", b"key")
    for path in (tmp_path / "ca.pem", str(tmp_path / "ca.pem")):
        assert Tls(path).pem()[0] == b"a CA"


def test_a_folder_is_three_files_and_a_service_is_a_name(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).write_text(name)
    assert Tls.from_folder(tmp_path).pem() == (b"ca.crt", b"tls.crt", b"tls.key")
    assert Tls.from_folder(tmp_path).server_name is None
    assert Tls.from_folder(tmp_path, "gateway").server_name == "gateway.hedgerow"


@pytest.mark.parametrize(("given", "missing"), [({"certificate": b"x"}, "key"), ({"key": b"x"}, "certificate")])
def test_certificate_and_key_belong_together(given: dict[str, bytes], missing: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Tls(**given)
    assert caught.value.metadata["field"] == f"tls.{missing}"


@pytest.mark.parametrize("client", ["Client", "VisionClient", "AudioClient"])
def test_a_file_that_is_not_there_is_refused_when_the_connection_is_opened(client: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as caught:
        getattr(hedgerow, client)("127.0.0.1:1", tls=Tls(tmp_path / "ca.crt"))
    assert caught.value.metadata == {"field": "tls.ca", "limit": "a PEM file", "value": str(tmp_path / "ca.crt")}


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(Tls(certificate=b"x", key=b"secret"))
