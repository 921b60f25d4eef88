"""Packages that cannot stand beside ours, each in an environment of its own: fetched the first time, then kept.

They are below `$XDG_CACHE_HOME/hedgerow` (`~/.cache/hedgerow`), under a name that changes with what is wanted. Several
processes may want one at once: the first makes it, the others wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_TAKES_S = 580.0  # a package index that is slow
_DONE = ".complete"


class NotInstalled(Exception):
    """The packages could not be had; the text has the installer's last words."""


def environment(name: str, requirements: str, progress: Callable[[str], None] = lambda said: None) -> Path:
    """The `bin` of an environment with `requirements`, as pip's files have them. Raises `NotInstalled`."""

    def make(folder: Path) -> None:
        progress(f"installing {name} into {folder}")
        listed = folder / "requirements.txt"
        run(sys.executable, "-m", "uv", "venv", "-q", "--clear", "--python", sys.executable, str(folder))
        listed.write_text(requirements)
        into = ("--python", str(folder / "bin" / "python"))
        run(sys.executable, "-m", "uv", "pip", "install", "-q", "--compile-bytecode", *into, "-r", str(listed))

    return kept(name, f"{sys.version}\n{requirements}", make) / "bin"


def kept(name: str, wanted: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` has filled with what is `wanted`, by whichever process came first."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hedgerow"
    folder = cache / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _DONE).exists():
            shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed half-way
            folder.mkdir()
            make(folder)
            (folder / _DONE).touch()
    return folder


def run(*command: str, folder: Path | None = None) -> None:
    """Have an installer do its work. Raises `NotInstalled`."""
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TAKES_S)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{' '.join(command)}: not done within {_TAKES_S:g} s") from None
    if done.returncode:
        raise NotInstalled(f"{' '.join(command)}:\n{done.stderr.decode(errors='replace')[-2_000:]}")
