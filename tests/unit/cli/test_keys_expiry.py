"""Keys that expire: made, listed, revoked, and never the last valid one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.keys_file import OLD, OTHER, changes, created, keys


def test_a_key_that_expires_has_the_time_beside_its_digest(mesh: Path) -> None:
    made = created("acme", "--expires", "2099-01-31T18:00:00+01:00")
    assert made["expires"] == "2099-01-31T17:00:00Z"
    item = f'{{"sha256": "{made["sha256"]}", "expires": "2099-01-31T17:00:00Z"}}'
    assert changes(mesh) == [
        f"-   acme: {{key_sha256: {OLD}, requests_per_s: 20}}",
        f"+   acme: {{key_sha256: [{item}, {OLD}], requests_per_s: 20}}",
    ]
    result = keys("create", "batch", "--expires", "30d")
    assert re.search(r" as its SHA-256, and expires at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ; the key itself", result.stderr)
    assert created("acme")["expires"] is None


def test_expired_keys_are_marked_in_the_list(mesh: Path) -> None:
    mesh.write_text(
        f"tenants: {{acme: {{key_sha256: [{OLD}, {{sha256: {OLD[::-1]}, expires: 2020-01-31}}, "
        f"{{sha256: {OTHER}, expires: '2099-01-31T18:00:00Z'}}]}}}}\n"
    )
    assert keys("list").stdout.splitlines() == [
        f"{OLD[:12]}  acme                      key_sha256",
        f"{OLD[::-1][:12]}  acme                      key_sha256  expired 2020-01-31T00:00:00Z",
        f"{OTHER[:12]}  acme                      key_sha256  expires 2099-01-31T18:00:00Z",
    ]
    listed = json.loads(keys("list", "--json").stdout)["keys"]
    assert [(key["expires"], key["expired"]) for key in listed] == [
        (None, False),
        ("2020-01-31T00:00:00Z", True),
        ("2099-01-31T18:00:00Z", False),
    ]


@pytest.mark.parametrize("given", ["30", "soon", "2020-01-31", ""])
def test_an_expiry_that_is_none_changes_nothing(mesh: Path, given: str) -> None:
    result = keys("create", "acme", "--expires", given)
    assert result.exit_code == 2
    assert "--expires" in result.stderr
    assert changes(mesh) == []


def test_a_file_with_an_invalid_expiry_is_not_listed(mesh: Path) -> None:
    mesh.write_text(f"tenants: {{acme: {{key_sha256: {{sha256: {OLD}, expires: 30}}}}}}\n")
    assert "mesh.yaml: acme.key_sha256: expires: a time such as 2027-01-31" in keys("list").stderr


EXPIRING = f"sha256: {OTHER}, expires: 2099-01-31"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"key_sha256: [{OLD}, {{{EXPIRING}}}]  # two", f"key_sha256: [{OLD}]  # two"),
        (f"key_sha256: [{{{EXPIRING}}}, {OLD}]", f"key_sha256: [{OLD}]"),
        (
            f"key_sha256:\n      - sha256: {OTHER}\n        expires: 2099-01-31  # soon\n      # ours\n      - {OLD}",
            f"key_sha256:\n      # ours\n      - {OLD}",
        ),
        (
            f"key_sha256:\n      - {OLD}\n      - expires: 2099-01-31\n        sha256: {OTHER}"
            "\n    # quotas\n    weight: 2",
            f"key_sha256:\n      - {OLD}\n    # quotas\n    weight: 2",
        ),
        (f"key_sha256: {{{EXPIRING}}}\n    key_env: MINE", "key_sha256: []\n    key_env: MINE"),
    ],
)
def test_a_key_that_expires_is_revoked_in_each_form(mesh: Path, before: str, after: str) -> None:
    mesh.write_text(f"tenants:\n  me:\n    {before}\ngateway: 1\n")
    assert keys("revoke", OTHER[:12]).exit_code == 0
    assert mesh.read_text() == f"tenants:\n  me:\n    {after}\ngateway: 1\n"


EXPIRED = f"{{sha256: {OTHER}, expires: 2020-01-31}}"


def test_the_last_valid_key_stays_beside_expired_ones(mesh: Path) -> None:
    mesh.write_text(text := f"tenants: {{me: {{key_sha256: [{EXPIRED}, {OLD}]}}}}\n")
    assert f"key {OLD[:12]} is the only one of me that has not expired" in keys("revoke", OLD[:12]).stderr
    assert mesh.read_text() == text
    assert keys("revoke", OTHER[:12]).exit_code == 0
    assert mesh.read_text() == f"tenants: {{me: {{key_sha256: [{OLD}]}}}}\n"


def test_an_expired_key_that_is_a_tenants_only_one_is_revoked_where_the_file_stays_usable(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text(f"me: {{keys: [{EXPIRED}]}}\n")
    alone = json.loads(keys("revoke", OTHER[:12], "--tenants-file", str(file), "--json").stdout)
    assert alone["error"]["reason"] == "LAST_KEY"
    file.write_text(f"me: {{keys: [{EXPIRED}]}}\nyou: {{keys: [{OLD}]}}\n")
    assert keys("revoke", OTHER[:12], "--tenants-file", str(file)).exit_code == 0
    assert yaml.safe_load(file.read_text()) == {"me": {"keys": []}, "you": {"keys": [OLD]}}


def test_a_mesh_file_keeps_a_key_of_each_tenant(mesh: Path) -> None:
    mesh.write_text(text := f"tenants: {{me: {{key_sha256: [{EXPIRED}]}}, you: {{key_sha256: {OLD}}}}}\n")
    assert "is the only one of me, and a tenant needs one" in keys("revoke", OTHER[:12]).stderr
    assert mesh.read_text() == text


def test_a_key_is_added_beside_one_that_expires_alone(mesh: Path) -> None:
    mesh.write_text(f"tenants: {{me: {{key_sha256: {{{EXPIRING}}}}}}}\n")
    made = created("me")
    assert mesh.read_text() == f'tenants: {{me: {{key_sha256: ["{made["sha256"]}", {{{EXPIRING}}}]}}}}\n'


def test_a_tenants_file_has_the_time_likewise(tmp_path: Path) -> None:
    file = tmp_path / "tenants.json"
    file.write_text(f'{{"acme": {{"keys": ["{OLD}"]}}}}\n')
    made = created("acme", "--expires", "2099-01-31", "--tenants-file", str(file))
    item = {"sha256": made["sha256"], "expires": "2099-01-31T00:00:00Z"}
    assert json.loads(file.read_text()) == {"acme": {"keys": [item, OLD]}}
    assert keys("revoke", made["id"], "--tenants-file", str(file)).exit_code == 0
    assert json.loads(file.read_text()) == {"acme": {"keys": [OLD]}}
