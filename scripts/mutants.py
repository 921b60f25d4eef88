"""Prints the small changes of the code that no unit test notices.

    python -m scripts.mutants [WORD ...] [--most N] [--minutes M]

mutmut makes the mutants, each a function with one change, and runs the tests that reach that function (`[tool.mutmut]`
in pyproject.toml). This script takes `--most` of those whose names contain a WORD. It takes the mutants whose names
have the smallest hashes: the same code has the same sample, and an edit replaces only the mutants of what it touched.
The exit status is 0 where every mutant of the sample was tried, whatever survived: many survivors change nothing that
a caller can observe.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from mutmut.__main__ import collect_source_file_mutation_data, create_mutants
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import copy_src_dir

FOLDER = Path("mutants")
SEED = "hedgerow"
UNTRIED = "not checked"
QUIET = ("killed", "timeout", UNTRIED)  # of these no diff is printed; a mutant that never ends is noticed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="a part of a mutant's name, such as services.gateway.policies")
    parser.add_argument("--most", type=int, default=100, help="mutants to try, at least 1 (default: 100)")
    parser.add_argument("--minutes", type=float, default=30, help="stop after this many minutes (default: 30)")
    given = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)  # mutmut replaces no data file and removes no test there
    chosen = sample(matching(generated(), given.words), given.most)
    if not chosen:
        parser.error(
            f"no mutant's name contains one of {given.words}; names begin like services.gateway.policies.hedge"
        )
    print(f"Trying {len(chosen)} mutants; first, mutmut runs the unit tests once to learn what each test reaches")
    run(chosen, given.minutes * 60)
    statuses = outcome(chosen)
    report(statuses)
    return UNTRIED in statuses.values()


def generated() -> list[str]:
    """Write the mutants of all files that are in scope; their names."""
    FOLDER.mkdir()
    with contextlib.redirect_stdout(io.StringIO()):
        copy_src_dir()
        create_mutants(os.cpu_count() or 1)
    return list(_exit_codes(()))


def matching(names: Iterable[str], words: Sequence[str]) -> list[str]:
    """The names that contain one of `words`; all names without words."""
    return [name for name in names if not words or any(word in name for word in words)]


def sample(names: Iterable[str], most: int) -> list[str]:
    """The `most` names with the smallest hashes, in alphabetical order."""
    return sorted(sorted(names, key=lambda name: sha256(f"{SEED} {name}".encode()).digest())[:most])


def run(names: Sequence[str], seconds: float) -> None:
    """Have mutmut try `names` on half of the cores, for `seconds` at most."""
    children = str(max(1, (os.cpu_count() or 1) // 2))
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", children, *names]
    mutmut = subprocess.Popen(command, start_new_session=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        try:
            mutmut.wait(seconds)
        finally:  # also after Ctrl-C
            with contextlib.suppress(ProcessLookupError):
                os.killpg(mutmut.pid, signal.SIGINT)  # mutmut and its children that run tests; results stay
            mutmut.wait()


def outcome(names: Sequence[str]) -> Mapping[str, str]:
    """By name what became of it: killed, survived, timeout, no tests, …"""
    return {name: status_by_exit_code[code] for name, code in _exit_codes(names).items()}


def report(statuses: Mapping[str, str]) -> None:
    for name, status in sorted(statuses.items(), key=lambda item: (item[1], item[0])):
        if status not in QUIET:
            print(f"\n# {name}: {status}\n{get_diff_for_mutant(name)}")
    counts = Counter(statuses.values())
    print(f"\n{len(statuses)} mutants: " + ", ".join(f"{count} {status}" for status, count in counts.most_common()))


def _exit_codes(names: Sequence[str]) -> Mapping[str, int | None]:
    return {name: code for _, name, code in collect_source_file_mutation_data(mutant_names=list(names))[0]}


if __name__ == "__main__":
    sys.exit(main())
