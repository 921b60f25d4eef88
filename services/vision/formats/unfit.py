"""Why a picture is refused."""

from __future__ import annotations

MAX_PARTS = 16_384  # boxes or segments of a file; real files have some hundred


class Unfit(Exception):
    """A file is refused. `why` is one of `format`, `bytes`, `pixels`, `structure`, `data`; `limit` is the allowed
    value, `got` the actual one."""

    def __init__(self, why: str, limit: str, got: str):
        super().__init__(f"{limit}, got {got}")
        self.why, self.limit, self.got = why, limit, got


def cut_short(kind: str, data: bytes) -> Unfit:
    """The file ends before its picture does."""
    return Unfit("structure", f"a whole {kind}", f"one that is cut short after {len(data)} bytes")


def followed(kind: str, count: int) -> Unfit:
    """The picture ends before its file does."""
    return Unfit("structure", f"a {kind} and nothing after it", f"{count} bytes after its end")


def broken(kind: str, what: str) -> Unfit:
    """The file does not follow its format."""
    return Unfit("structure", f"a whole {kind}", what)
