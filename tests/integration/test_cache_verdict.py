"""Verdicts made of labelled pairs: by the command, and served by the cache as a process."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hedgerow.cache.v1 import cache_pb2
from launcher.processes import free_port
from services.cache.training.pairs import Pair
from services.cache.verdict.verifier import MODEL, CrossEncoder
from tests.integration.cache_process import StartCache, failing_start, lookup, store
from tests.waiting import until

_ASKED = (
    "How do I {} my {}?",
    "How can I {} my {}?",
    "What is the way to {} my {}?",
    "Please tell me how to {} my {}.",
)
_DONE = ("reset", "delete", "export", "rename", "share", "print", "move", "copy")
_THINGS = ("password", "account", "invoice", "calendar", "photo album", "contact list", "playlist", "backup", "report")


def labelled(count: int, seed: int = 3) -> Iterator[Pair]:
    """Duplicates ask for the same in other words; the others ask for something else in other words."""
    rng = random.Random(seed)
    for number in range(count):
        done, thing = rng.choice(_DONE), rng.choice(_THINGS)
        a, b = rng.sample(_ASKED, 2)
        duplicate = number % 2 == 0
        other = done if duplicate else rng.choice([each for each in _DONE if each != done])
        # A number makes each pair one that hangs together with no other.
        yield Pair(
            f"{number}: {a.format(done, thing)}",
            f"{number}: {b.format(other, thing)}",
            duplicate,
        )


def write(file: Path, count: int) -> Path:
    lines = [json.dumps(pair._asdict()) for pair in labelled(count)]
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module")
def environment(model_cache: Path) -> dict[str, str]:
    return {**os.environ, "HEDGEROW_CACHE_MODEL_CACHE": str(model_cache)}


def run(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hedgerow.cli", "cache", *map(str, arguments)]
    alone = {**environment, "OMP_NUM_THREADS": "1"}  # beside other tests, threads of one training wait for each other
    return subprocess.run(command, env=alone, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """A folder without a verifier."""
    folder = tmp_path_factory.mktemp("verdict")
    made = run(environment, "calibrate", write(folder / "pairs.jsonl", 800), folder / "made")
    assert made.returncode == 0, made.stderr
    assert "wrong of lookups, at most" in made.stdout
    return folder / "made"


def test_calibrating_needs_no_verifier(calibrated: Path) -> None:
    known = json.loads((calibrated / "verdict.json").read_text())
    assert known["weights"]["cosine"] > 0 == known["weights"]["verifier"]
    assert known["made_of"]["pairs"] == 800
    assert not (calibrated / MODEL).exists()


async def test_the_cache_serves_by_what_was_certified(start_cache: StartCache, calibrated: Path) -> None:
    _, cache = await start_cache(verdict=calibrated, max_wrong=0.05)
    await cache.Store(store("7: How do I export my invoice?", "Press export."))
    same = "7: How can I export my invoice?"
    hit = await cache.Lookup(lookup(same, min_similarity=0.5))
    assert hit.verdict == cache_pb2.VERDICT_SEMANTIC
    assert hit.answer.text == "Press export."
    assert (await cache.Lookup(lookup(same, min_similarity=0.5, max_wrong=0.5))).verdict == cache_pb2.VERDICT_SEMANTIC
    strict = await cache.Lookup(lookup(same, min_similarity=0.5, max_wrong=0.0001))
    assert strict.verdict == cache_pb2.VERDICT_MISS  # no threshold holds that
    other = await cache.Lookup(lookup("7: How can I print my invoice?", min_similarity=0.5))
    assert other.verdict == cache_pb2.VERDICT_MISS
    assert other.refused.startswith("a score of 0.")
    assert (await cache.Lookup(lookup(same.replace("7", "8")))).refused == "numbers differ"
    assert (await cache.Lookup(lookup(same, tenant="other"))).verdict == cache_pb2.VERDICT_MISS


async def test_a_verifier_is_trained_and_reads_what_the_cache_asks_it(
    start_cache: StartCache, tmp_path: Path, environment: dict[str, str]
) -> None:
    pairs, folder = write(tmp_path / "pairs.jsonl", 1_600), tmp_path / "made"
    made = await asyncio.to_thread(run, environment, "train", pairs, folder, "--minutes", "0.1", "--json")
    assert made.returncode == 0, made.stderr + made.stdout
    assert json.loads(made.stdout)["made_of"]["pairs"] == 1_600
    asked, stored = "7: How can I export my invoice?", "7: How do I export my invoice?"
    read = CrossEncoder(folder).logit(asked, stored)
    assert read
    metrics = f"127.0.0.1:{free_port()}"
    _, cache = await start_cache(verdict=folder, max_wrong=0.05, metrics_address=metrics)
    await cache.Store(store(stored))
    found = await until(
        lambda: cache.Lookup(lookup(asked, min_similarity=0.5)),
        holds=lambda found: found.refused != "it could not be verified",  # in time: a busy machine may take longer
    )
    assert found.verdict == cache_pb2.VERDICT_SEMANTIC or found.refused.startswith("a score of 0.")
    async with httpx.AsyncClient() as http:
        page = (await http.get(f"http://{metrics}/metrics")).text
    (verified,) = (line for line in page.splitlines() if line.startswith("hedgerow_cache_verify_seconds_count"))
    assert float(verified.split()[1]) >= 1


async def test_where_nothing_was_certified_nothing_is_a_hit(start_cache: StartCache, calibrated: Path) -> None:
    _, cache = await start_cache(verdict=calibrated, max_wrong=0.0001)
    await cache.Store(store("How do I export my invoice?"))
    found = await cache.Lookup(lookup("What is the way to export my invoice?", min_similarity=0.5))
    assert found.verdict == cache_pb2.VERDICT_MISS


def test_what_is_there_is_not_written_over(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "made").mkdir()
    refused = run(environment, "train", write(tmp_path / "pairs.jsonl", 100), tmp_path / "made")
    assert refused.returncode == 1
    assert "exists: name a folder that is to be made" in refused.stderr


def test_bad_pairs_are_named(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"a": "one", "b": 2, "duplicate": 1}')
    refused = run(environment, "calibrate", tmp_path / "pairs.jsonl", tmp_path / "made", "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["message"] == "line 1: b: text other than white space, got 2"
    assert [file.name for file in tmp_path.iterdir()] == ["pairs.jsonl"]


def test_a_training_that_is_broken_off_leaves_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    pairs = write(tmp_path / "pairs.jsonl", 1_600)
    program = [sys.executable, "-m", "hedgerow.cli", "cache", "train", str(pairs), str(tmp_path / "made"), "--json"]
    with subprocess.Popen(program, env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr
        assert running.stderr.readline().startswith("train: 1200 pairs")
        assert list(tmp_path.glob("tmp*/verdict"))
        time.sleep(0.5)  # somewhere in what it loads and does
        running.send_signal(signal.SIGINT)  # to the command alone, which has to pass it on
        assert running.wait(timeout=60) == 130
    assert [file.name for file in tmp_path.iterdir()] == ["pairs.jsonl"]


def test_a_verdict_that_is_not_usable_ends_the_start(tmp_path: Path, model_cache: Path) -> None:
    failed = failing_start(model_cache=model_cache, verdict=tmp_path / "none")
    assert failed.returncode == 2
    assert "none/verdict.json is not usable" in failed.stderr
