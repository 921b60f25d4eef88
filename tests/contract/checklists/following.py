"""Checklists of CONTRIBUTING.md, followed in one copy of the tree: their commands and their tests take a minute."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import REPOSITORY

_WITHIN_S = 600


def copy_of_the_tree(folder: Path) -> Path:
    """Copy the files that git knows, as they are in the work tree, into a folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for name in filter(lambda name: (REPOSITORY / name).is_file(), listed.stdout.splitlines()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, folder / name)
    return folder


@dataclass(frozen=True)
class Checklist:
    """One of CONTRIBUTING.md: its title, the files that its reader writes, as they become, and the tests of these."""

    title: str
    by_hand: Mapping[str, str]
    tests: Sequence[str]


@dataclass(frozen=True)
class Followed:
    """A copy of the tree in which checklists were followed: by title their texts and the files that were written by
    hand. `passed`: the names of the tests that passed there."""

    tree: Path
    texts: Mapping[str, str]
    by_hand: Mapping[str, set[str]]
    passed: set[str]


def follow(tree: Path, *checklists: Checklist) -> Followed:
    """Write the files that are by hand, run the checklists' command, then their tests, all of which pass. The command
    changes no file that is by hand."""
    texts = {each.title: _text(tree, each.title) for each in checklists}
    (targets,) = {each for text in texts.values() for each in re.findall(r"^\d\. `make ([a-z ]+)`", text, re.MULTILINE)}
    by_hand = {path: text for each in checklists for path, text in each.by_hand.items()}
    for path, text in by_hand.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    run(tree, "make", "-o", "setup", f"BIN={Path(sys.executable).parent}", *targets.split())
    assert {path: (tree / path).read_text() for path in by_hand} == by_hand
    tests = dict.fromkeys(test for each in checklists for test in each.tests)
    said = run(tree, sys.executable, "-m", "pytest", "-v", "-n0", "-p", "no:cacheprovider", *tests)
    passed = set(re.findall(r"::(\S+) PASSED", said))
    return Followed(tree, texts, {each.title: set(each.by_hand) for each in checklists}, passed)


def _text(tree: Path, title: str) -> str:
    found = re.search(rf"\*\*{title}\.\*\*.*?(?=\n\n\*\*)", (tree / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert found, f"CONTRIBUTING.md has no checklist {title}"
    return found[0]


def run(tree: Path, *command: str) -> str:
    """The output of a command, which must succeed within ten minutes."""
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
