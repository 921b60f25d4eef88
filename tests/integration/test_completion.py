"""A shell completes commands, options and names, as `hedgerow --install-completion` has it do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = f"{sys.executable} -m hedgerow_cli"
# What bash does when Tab is pressed: words, the number of the last one, and the command's own function.
TAB = """
eval "$1"; COMP_WORDS=($3); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_hedgerow_completion "$2"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def bash(script: str, *arguments: str, folder: Path | None = None) -> str:
    """The output of a bash without its user's files."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEDGEROW_")}
    command = ["bash", "--norc", "--noprofile", "-c", script, "bash", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, cwd=folder, env=environment
    ).stdout


@pytest.fixture(scope="module")
def function() -> str:
    """The output of `--show-completion` for bash."""
    return bash(f"{PROGRAM} --show-completion; true")  # `true`: bash stays the parent by which the shell is known


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (tmp_path / "mesh.yaml").write_text("tenants: {acme: {key_env: A}, acorn: {key_env: B}, batch: {key_env: C}}\n")
    logs = tmp_path / ".hedgerow" / "logs"
    logs.mkdir(parents=True)
    (logs / "gateway.log").touch()
    (tmp_path / "hedgerow").write_text(f'#!/bin/sh\nexec {PROGRAM} "$@"\n')
    (tmp_path / "hedgerow").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("hedgerow mo", ["models"]),
        ("hedgerow keys re", ["revoke"]),
        ("hedgerow ask --ti", ["--tier"]),
        ("hedgerow ask --tier qu", ["quality"]),
        ("hedgerow keys create ac", ["acme", "acorn"]),
        ("hedgerow logs ga", ["gateway"]),
    ],
)
def test_tab_completes(function: str, folder: Path, typed: str, completed: list[str]) -> None:
    assert bash(TAB, function, "./hedgerow", typed, folder=folder).split() == completed


def test_completion_is_installed_for_the_current_shell(tmp_path: Path) -> None:
    said = bash(f"HOME={tmp_path} {PROGRAM} --install-completion; true")
    assert "bash completion installed" in said
    assert "_hedgerow_completion" in (tmp_path / ".bash_completions" / "hedgerow.sh").read_text()
    assert "hedgerow.sh" in (tmp_path / ".bashrc").read_text()
