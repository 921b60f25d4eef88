"""Brings each old fault back in a copy of the tree and runs the test that must notice. The exit status is the number of
faults that no test noticed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutations import Mutation, mutations

_ROOT = Path(__file__).parents[2]
_TESTS_FAILED = 1  # pytest's exit status; any other says that the test did not run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", help="try only faults with one of these in their text, file or test")
    words = parser.parse_args().words
    known = list(mutations())
    chosen = [each for each in known if not words or any(word in _words(each) for word in words)]
    if not chosen:
        parser.error(f"none of the {len(known)} faults has one of these words: {', '.join(words)}")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        _copy(tree)
        unnoticed = [
            each for number, each in enumerate(chosen, 1) if not _noticed(tree, each, f"{number}/{len(chosen)}")
        ]
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} faults were noticed")
    return len(unnoticed)


def _words(mutation: Mutation) -> str:
    return f"{mutation.fault} {mutation.file} {mutation.test}"


def _copy(tree: Path) -> None:
    """What git knows of, as it is in the work tree."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=_ROOT, capture_output=True, text=True)
    for name in filter(lambda name: (_ROOT / name).is_file(), listed.stdout.splitlines()):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(_ROOT / name, tree / name)


def _noticed(tree: Path, mutation: Mutation, number: str) -> bool:
    with _applied(tree, mutation):
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutation.test],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
    noticed = ran.returncode == _TESTS_FAILED
    print(
        f"{number} {'noticed' if noticed else f'NOT NOTICED (pytest: {ran.returncode})'}: {mutation.fault}", flush=True
    )
    if not noticed:
        print(f"    {mutation.file}: {mutation.test}\n{ran.stdout[-2000:]}", flush=True)
    return noticed


@contextmanager
def _applied(tree: Path, mutation: Mutation) -> Iterator[None]:
    path = tree / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        raise SystemExit(
            f"{mutation.fault}: {mutation.file} has {text.count(mutation.old)} times what should be there once"
        )
    path.write_text(text.replace(mutation.old, mutation.new))
    try:
        yield
    finally:
        path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
