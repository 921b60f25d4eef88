"""`hedgerow keys`: a key is made, listed and revoked, and the rest of the file stays as it is."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from pathlib import Path

import pytest
import yaml

from tests.keys import digest
from tests.unit.cli.keys_file import MESH, OLD, OTHER, changes, created, keys


def test_a_key_is_printed_once_and_the_file_has_its_sha256_alone(mesh: Path) -> None:
    result = keys("create", "acme")
    assert result.exit_code == 0, result.output
    key = result.stdout.strip()
    assert re.fullmatch(r"hr-[\w-]{43}", key)
    assert yaml.safe_load(mesh.read_text())["tenants"]["acme"]["key_sha256"] == [digest(key), OLD]
    assert key not in mesh.read_text()
    assert f"key {digest(key)[:12]} of acme is in mesh.yaml" in result.stderr


def test_creating_a_key_changes_one_line_and_keeps_comments(mesh: Path) -> None:
    made = created("acme")
    assert changes(mesh) == [
        f"-   acme: {{key_sha256: {OLD}, requests_per_s: 20}}",
        f'+   acme: {{key_sha256: ["{made["sha256"]}", {OLD}], requests_per_s: 20}}',
    ]
    mesh.write_text(MESH)
    made = created("batch")
    assert changes(mesh) == [f'+       - "{made["sha256"]}"']


def test_a_tenant_that_has_another_kind_of_key_gets_a_line(mesh: Path) -> None:
    before = "tenants:\n  me:\n    key_env: MINE\n    # requests_per_s: 10\n\n# The way in\ngateway: 1\n"
    mesh.write_text(before)
    made = created("me")
    assert changes(mesh, before) == [f'+     key_sha256: ["{made["sha256"]}"]']


@pytest.mark.parametrize("name", ["new", "a b", "on", "12", "ünïcode", "with: colon"])
def test_a_new_tenant_is_added_when_it_is_asked_for(mesh: Path, name: str) -> None:
    assert keys("create", name).exit_code == 1
    made = created(name, "--new")
    assert yaml.safe_load(mesh.read_text())["tenants"][name] == {"key_sha256": [made["sha256"]]}
    assert len(changes(mesh)) == 1


@pytest.mark.parametrize(
    "before", ["models: {a: ./b}", "models: {a: ./b}\n# end\n", "tenants:\nmodels: {a: ./b}\n", ""]
)
def test_the_first_tenant_is_added_to_a_file_without_any(mesh: Path, before: str) -> None:
    mesh.write_text(before)
    made = created("acme", "--new")
    assert yaml.safe_load(mesh.read_text()) == {
        **(yaml.safe_load(before) or {}),
        "tenants": {"acme": {"key_sha256": [made["sha256"]]}},
    }
    assert ("# end" in before) == ("# end" in mesh.read_text())


def test_an_unknown_tenant_is_refused_with_the_nearest(mesh: Path) -> None:
    result = keys("create", "acmee")
    assert result.exit_code == 1
    assert result.stderr == "hedgerow: mesh.yaml has no tenant acmee; did you mean acme? --new adds it\n"
    assert "there are acme, batch; --new adds it" in keys("create", "zzz").stderr
    refused = json.loads(keys("create", "zzz", "--json").stdout)["error"]
    assert refused["reason"] == "TENANT_UNKNOWN"
    assert changes(mesh) == []


def test_keys_are_listed_with_their_source(mesh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mesh.parent / "key").write_text("of-a-file\n")
    text = MESH.replace("  batch:\n", "  batch:\n    key_env: [MINE, NOT_SET]\n    key_file: key\n")
    mesh.write_text(text)
    monkeypatch.setenv("MINE", "of-a-variable")
    listed = json.loads(keys("list", "--json").stdout)
    assert [(key["tenant"], key["id"], key["source"], key["name"]) for key in listed["keys"]] == [
        ("acme", OLD[:12], "key_sha256", ""),
        ("batch", OLD[::-1][:12], "key_sha256", ""),
        ("batch", OTHER[:12], "key_sha256", ""),
        ("batch", digest("of-a-variable")[:12], "key_env", "MINE"),
        ("batch", "", "key_env", "NOT_SET"),
        ("batch", digest("of-a-file")[:12], "key_file", "key"),
    ]
    assert listed["tenants"] == ["acme", "batch"]
    lines = keys("list").stdout.splitlines()
    assert lines[0].split() == [OLD[:12], "acme", "key_sha256"]
    assert lines[4].split() == ["not", "set", "batch", "key_env", "NOT_SET"]


def test_a_revoked_key_leaves_the_rest_of_the_file(mesh: Path) -> None:
    assert keys("revoke", OTHER[:6]).stdout == f"key {OTHER[:12]} of batch is revoked in mesh.yaml\n"
    assert changes(mesh) == [f'-       - "{OTHER}"   # of the night\'s jobs']


def test_a_key_is_revoked_from_stdin(mesh: Path) -> None:
    made = created("acme")
    assert keys("revoke", "-", typed=f"{made['key']}\n").exit_code == 0
    assert yaml.safe_load(mesh.read_text()) == yaml.safe_load(MESH.replace(OLD + ",", f"[{OLD}],"))


@pytest.mark.parametrize("written", [f"{OLD}", f'["{OLD}"]', f'\n      - "{OLD}"  # ours', f"\n    - {OLD}"])
def test_the_last_digest_beside_a_key_of_another_kind_is_revoked(mesh: Path, written: str) -> None:
    mesh.write_text(f"tenants:\n  me:\n    key_sha256: {written}\n    key_env: MINE\n")
    assert keys("revoke", OLD[:12]).exit_code == 0
    assert yaml.safe_load(mesh.read_text()) == {"tenants": {"me": {"key_sha256": [], "key_env": "MINE"}}}


@pytest.mark.parametrize(
    ("wanted", "reason", "message"),
    [
        (OLD[:12], "LAST_KEY", f"key {OLD[:12]} is the only one of acme, and a tenant needs one; make another first"),
        ("0000000", "KEY_UNKNOWN", "mesh.yaml has no key 0000000"),
        (OLD[:5], "KEY_UNKNOWN", "at least 6 digits of the key's id are needed, got 5"),
    ],
)
def test_a_key_that_cannot_be_revoked_stays(mesh: Path, wanted: str, reason: str, message: str) -> None:
    assert message in keys("revoke", wanted).stderr
    assert json.loads(keys("revoke", wanted, "--json").stdout)["error"]["reason"] == reason
    assert changes(mesh) == []


def test_a_key_in_a_variable_is_revoked_there(mesh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "k")
    mesh.write_text("tenants: {me: {key_env: MINE}}\n")
    assert f"key {digest('k')[:12]} of me is in key_env MINE" in keys("revoke", digest("k")[:12]).stderr


@pytest.mark.parametrize(
    "text",
    [
        f'{{"acme": {{"keys": ["{OLD}"], "weight": 2}}}}\n',
        f"# Ours.\nacme:\n  keys:\n  - {OLD}\n  weight: 2\n# end\n",
        f"acme: {{keys: ['{OLD}'], weight: 2}}",
        f'acme:\r\n  weight: 2\r\n  keys: ["{OLD}"]\r\n',
    ],
)
def test_a_tenants_file_is_changed_likewise(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_bytes(text.encode())
    made = created("acme", "--tenants-file", str(file))
    assert yaml.safe_load(file.read_text()) == {"acme": {"keys": [made["sha256"], OLD], "weight": 2}}
    other = created("next", "--new", "--tenants-file", str(file))
    assert yaml.safe_load(file.read_text())["next"] == {"keys": [other["sha256"]]}
    assert keys("revoke", made["id"], "--tenants-file", str(file)).exit_code == 0
    assert yaml.safe_load(file.read_text())["acme"] == {"keys": [OLD], "weight": 2}
    if text.startswith("{"):
        json.loads(file.read_text())
    if "\r\n" in text:
        assert b"\n" not in file.read_bytes().replace(b"\r\n", b"")


@pytest.mark.parametrize("refused", [False, True])
def test_a_file_that_is_changed_stays_its_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    given: list[tuple[int, int]] = []

    def chown(file: str, user: int, group: int) -> None:
        given.append((user, group))
        if refused:  # to all but root
            raise PermissionError

    file = tmp_path / "tenants.yaml"
    file.write_text(f"acme: {{keys: ['{OLD}']}}\n")
    file.chmod(0o640)
    monkeypatch.setattr(os, "chown", chown)
    created("acme", "--tenants-file", str(file))
    before = file.stat()
    assert given == [(before.st_uid, before.st_gid)]
    assert stat.S_IMODE(before.st_mode) == 0o640


def test_a_tenants_file_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    assert keys("create", "acme", "--tenants-file", str(file)).exit_code == 1
    assert not file.exists()
    made = created("acme", "--new", "--tenants-file", str(file))
    assert yaml.safe_load(file.read_text()) == {"acme": {"keys": [made["sha256"]]}}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_tenants_file_in_the_folder_of_no_user_is_reported(mesh: Path) -> None:
    mesh.write_text("models: {a: ./b}\ntenants_file: ~no-such-user/tenants.yaml\n")
    result = keys("list")
    assert result.exit_code == 1
    said = "hedgerow: mesh.yaml: tenants_file: a path is needed, ~no-such-user is no user's home folder\n"
    assert result.stderr == said


def test_the_tenants_file_of_a_mesh_file_is_the_one_that_changes(mesh: Path) -> None:
    mesh.write_text("models: {a: ./b}\ntenants_file: who.yaml\n")
    Path("who.yaml").write_text(f"acme: {{keys: [{OLD}]}}\n")
    Path("who.yaml").chmod(0o640)
    made = created("acme")
    assert yaml.safe_load(Path("who.yaml").read_text())["acme"]["keys"] == [made["sha256"], OLD]
    assert stat.S_IMODE(Path("who.yaml").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "text",
    [
        f"tenants:\n  acme: &a {{key_sha256: {OLD}}}\n  other: *a\n",
        "tenants: [acme]\n",
        "tenants: {acme: {}, acme: {}}\n",
        "tenants: {acme: [\n",
        "- 1\n",
    ],
)
def test_a_file_that_cannot_be_edited_stays(mesh: Path, text: str) -> None:
    mesh.write_text(text)
    result = keys("create", "acme", "--new", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["reason"] == "FILE_UNUSABLE"
    assert mesh.read_text() == text
    assert [each.name for each in mesh.absolute().parent.iterdir()] == ["mesh.yaml"]


def test_a_name_that_could_pass_for_another_is_refused(mesh: Path) -> None:
    assert "printable characters" in keys("create", "acme\u200b", "--new").stderr
    assert changes(mesh) == []


def test_keys_that_are_made_at_once_are_all_there(mesh: Path) -> None:
    made: list[dict[str, str]] = []

    def make() -> None:
        from launcher.meshfile.keys import KeysFile

        _, key = KeysFile.of_mesh(mesh.absolute()).create("acme")
        made.append({"sha256": key.sha256})

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each["sha256"] for each in made} | {OLD} == set(
        yaml.safe_load(mesh.read_text())["tenants"]["acme"]["key_sha256"]
    )


def test_without_a_file_it_says_which_options_name_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = keys("list")
    assert result.exit_code == 2
    assert "mesh.yaml is not here; name a file with --mesh or --tenants-file" in " ".join(result.stderr.split())
    assert keys("list", "--mesh", "none.yaml").exit_code == 1
