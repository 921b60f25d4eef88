"""Checklists of CONTRIBUTING.md, followed in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import REPOSITORY

_WITHIN_S = 240


def copy_of_the_tree(folder: Path) -> Path:
    """Copy the files that git knows, as they are in the work tree, into a folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for name in filter(lambda name: (REPOSITORY / name).is_file(), listed.stdout.splitlines()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, folder / name)
    return folder


def checklist(tree: Path, title: str, by_hand: Mapping[str, str]) -> str:
    """Write the files that are by hand, run the commands of the checklist, and return its text. No command may change
    a file that is by hand."""
    found = re.search(rf"\*\*{title}\.\*\*.*?(?=\n\n\*\*)", (tree / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert found, f"CONTRIBUTING.md has no checklist {title}"
    for path, text in by_hand.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    (targets,) = re.findall(r"^\d\. `make ([a-z ]+)`", found[0], re.MULTILINE)
    run(tree, "make", "-o", "setup", f"BIN={Path(sys.executable).parent}", *targets.split())
    assert {path: (tree / path).read_text() for path in by_hand} == by_hand
    return found[0]


def passing(tree: Path, *paths: str) -> set[str]:
    """The names of the tests in these files, all of which pass."""
    told = run(tree, sys.executable, "-m", "pytest", "-v", "-n0", "-p", "no:cacheprovider", *paths)
    return set(re.findall(r"::(\S+) PASSED", told))


def run(tree: Path, *command: str) -> str:
    """The output of a command, which must succeed within four minutes."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_WITHIN_S,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
    return done.stdout
