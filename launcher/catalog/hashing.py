"""SHA-256 of files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from launcher.catalog.errors import Damaged

_BLOCK_BYTES = 1024 * 1024


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_checked(source: BinaryIO, target: Path, expected: str, named: str) -> None:
    """Copy a file. Raises `Damaged`, and leaves no file, if its SHA-256 differs from the expected one."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != expected:
        target.unlink()
        raise Damaged(f"{named}: SHA-256 {expected} expected, got {digest.hexdigest()}")
