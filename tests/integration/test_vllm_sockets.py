"""The folders in which vLLM's processes meet go with their process, or with the next start."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from services.llm.vllm.load import Sockets, sweep

_HOLDS = """
import sys
from services.llm.vllm.load import Sockets
sockets = Sockets(sys.argv[1])
print(sockets.name, flush=True)
sys.stdin.read()
"""


def folders(parent: Path) -> list[str]:
    return sorted(str(each) for each in parent.iterdir())


def test_files_of_a_killed_process_are_removed_at_the_next_start(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        left = process.stdout.readline().strip()
        running = Sockets(str(tmp_path))
        assert folders(tmp_path) == sorted([left, running.name])  # both run
        process.kill()
    Path(left, "a socket").touch()
    later = Sockets(str(tmp_path))
    assert folders(tmp_path) == sorted([running.name, later.name])


def test_a_folder_that_is_being_made_is_not_swept(tmp_path: Path):
    (begun := tmp_path / "hedgerow-vllm-begun").mkdir()
    (begun / "lock.new").touch()
    sweep(tmp_path)
    assert folders(tmp_path) == [str(begun)]


def test_other_folders_stay(tmp_path: Path):
    (other := tmp_path / "another").mkdir()
    (other / "lock").touch()
    sweep(tmp_path)
    assert folders(tmp_path) == [str(other)]


def test_a_folder_that_is_in_use_stays(tmp_path: Path):
    (used := tmp_path / "hedgerow-vllm-used").mkdir()
    with (used / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(tmp_path)
        assert folders(tmp_path) == [str(used)]
    sweep(tmp_path)
    assert folders(tmp_path) == []
