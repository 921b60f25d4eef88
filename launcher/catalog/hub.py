"""The model hub, where it answers within five seconds.

As a module of its own, `python -m launcher.catalog.hub FOLDER REPOSITORY REVISION FILE…` downloads in a child process:
`huggingface_hub` resumes a download that was cut off, and a child can be ended at any time.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from launcher.catalog import children
from launcher.catalog.errors import Damaged, ModelUnavailable
from launcher.catalog.hashing import sha256_of
from launcher.catalog.records import ModelSource
from launcher.catalog.steps import Report, Step, bytes_in

_ANSWER_S = 5.0
_ASKS = """
import sys, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=float(sys.argv[2])).close()
except OSError as error:
    sys.exit(str(getattr(error, "reason", error)))
"""


def fetch(source: ModelSource, folder: Path, model: str, report: Report) -> None:
    """Download the source's files into `folder` and check their SHA-256. Raises `ModelUnavailable` and `Damaged`."""
    _reach()

    def tick() -> None:
        report(Step(model, "downloading", source.hub, min(bytes_in(folder), source.bytes), source.bytes))

    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", __name__, str(folder), source.hub, source.revision, *source.files]
    code, said = children.run(command, tick, {"HF_HUB_DISABLE_PROGRESS_BARS": "1"})
    if code:
        raise ModelUnavailable(f"the hub did not deliver {source.hub}: {_last_line(said)}")
    for name, expected in source.files.items():
        if (found := sha256_of(folder / name)) != expected:
            (folder / name).unlink()
            raise Damaged(f"{source.hub}: {name}: SHA-256 {expected} expected, got {found}")


def _reach() -> None:
    """Raises `ModelUnavailable` unless the hub can be asked."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ModelUnavailable("the hub is not used: HF_HUB_OFFLINE is set")
    if not find_spec("huggingface_hub"):
        raise ModelUnavailable("the hub is not used: huggingface_hub is not installed")
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if reason := _unreachable(f"{endpoint.rstrip('/')}/api/models?limit=1"):
        raise ModelUnavailable(f"{endpoint} cannot be reached: {reason}")


@cache
def _unreachable(url: str) -> str:
    """Why the hub does not answer in time; empty where it does. Asked once in the life of a process, and in a child,
    since a name that is being looked up cannot be interrupted."""
    code, said = children.run([sys.executable, "-c", _ASKS, url, str(_ANSWER_S)], timeout_s=_ANSWER_S)
    return "" if code == 0 else f"no answer within {_ANSWER_S:g} s" if code == -9 else _last_line(said)


def _last_line(said: str) -> str:
    return (said.splitlines() or ["no output"])[-1][:200]


def _download(folder: Path, repository: str, revision: str, *names: str) -> None:
    from huggingface_hub import hf_hub_download

    for name in names:
        hf_hub_download(repository, name, revision=revision, local_dir=folder)


if __name__ == "__main__":
    _download(Path(sys.argv[1]), *sys.argv[2:])
