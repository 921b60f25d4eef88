"""Keys of providers and callers in a mesh file: named, and never written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.meshfile.problems import BadMeshFile
from tests.unit.launcher.meshfile.mesh_files import KEY
from tests.unit.launcher.meshfile.test_reading import SMALLEST, file_of, problem_lines, problems, read_text

KEYS_IN_PLAIN_TEXT = [
    f"models:\n  a: {{url: 'http://h/v1', key_env: {KEY}}}",
    f"models:\n  a: {{url: 'http://h/v1', key: {KEY}}}",
    f"models:\n  a: {{url: 'http://h/v1', api_key: {KEY}}}",
    f"models:\n  a: {{url: 'http://h/v1', key_file: {KEY}}}",
    f"models:\n  a: {{url: 'http://{KEY}@h/v1'}}",
    f"models:\n  a: {{url: 'http://h/v1?key={KEY}'}}",
    f"models:\n  a: {{url: 'http://h/v1', options: {{api_key: {KEY}}}}}",
    f"models:\n  a: {{url: 'http://h/v1', options: {{extra_headers: {{x-api-key: {KEY}}}}}}}",
    f"models: {{a: x/y}}\ntenants:\n  acme: {{key_env: {KEY}}}",
    f"models: {{a: x/y}}\ntenants:\n  acme: {{key_sha256: {KEY}}}",
    f"models: {{a: x/y}}\ncache: {{redis_url: 'redis://:{KEY}@h'}}",
    f"models: {{a: x/y}}\ncache: {{redis_url_env: 'redis://:{KEY}@h'}}",
    f"models:\n  a: {{url: 'http://h/v1', key_env: {KEY}",
]


@pytest.mark.parametrize("text", KEYS_IN_PLAIN_TEXT)
def test_a_key_in_the_file_is_refused_and_never_printed(text: str, mesh_folder: Path) -> None:
    found = problem_lines(text, mesh_folder)
    assert found
    assert not any("Ab12" in line for line in found)


def test_a_key_in_the_place_of_a_variables_name_is_recognized(mesh_folder: Path) -> None:
    for pasted in ("sk-proj-1", "gsk_Ab12", "AIzaSyAb", "hf_abc", "0f3a"):
        (problem,) = problems(f"models:\n  a: {{url: 'http://h/v1', key_env: {pasted}}}", mesh_folder)
        assert problem.message.startswith("the name of an environment variable is needed, in capitals")


def test_a_key_file_must_hold_one_key(mesh_folder: Path) -> None:
    model = "models:\n  a: {url: 'http://h/v1', key_file: %s}"
    assert file_of(model % "key.txt", mesh_folder).models["a"].key_file == mesh_folder / "key.txt"
    (problem,) = problems(model % "two.txt", mesh_folder)
    assert problem.message.startswith("a file with one key and nothing else is needed")


def test_providers_keys_need_not_be_there_for_what_runs_elsewhere_and_callers_must(mesh_folder: Path) -> None:
    text = SMALLEST + "tenants:\n  acme: {key_env: CALLER_KEY}\n"
    assert (
        read_text(text, mesh_folder, {"CALLER_KEY": "x"}, keys_needed=False).whole().models["gpt"].key_env
        == "PROVIDER_KEY"
    )
    with pytest.raises(BadMeshFile, match="CALLER_KEY is not set"):
        read_text(text, mesh_folder, {}, keys_needed=False).whole()
    with pytest.raises(BadMeshFile, match=r"acme\.key_file: a file with one key and nothing else is needed"):
        read_text(text.replace("key_env: CALLER_KEY", "key_file: two.txt"), mesh_folder, {}, keys_needed=False).whole()
