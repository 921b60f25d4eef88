"""An environment with packages is made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.environments import NotInstalled, kept


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_of_several_who_want_the_same_one_makes_it() -> None:
    made: list[Path] = []
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: kept("some", "a==1", made.append), range(4)))
    assert made == list(folders)
    assert kept("some", "a==2", lambda folder: None) not in folders


def test_what_was_left_in_the_middle_is_made_anew() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise NotInstalled("no index")

    with pytest.raises(NotInstalled):
        kept("some", "a==1", fail)
    assert not list(kept("some", "a==1", lambda folder: None).glob("half"))
