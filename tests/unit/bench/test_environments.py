"""An environment with packages is made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.environments import NotInstalled, kept


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_one_of_several_concurrent_callers_makes_the_environment() -> None:
    made: list[Path] = []
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: kept("some", "a==1", made.append), range(4)))
    assert made == list(folders)
    assert kept("some", "a==2", lambda folder: None) not in folders


def test_an_unfinished_environment_is_made_again() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise NotInstalled("no index")

    with pytest.raises(NotInstalled):
        kept("some", "a==1", fail)
    assert not list(kept("some", "a==1", lambda folder: None).glob("half"))
