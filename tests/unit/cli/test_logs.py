"""`hedgerow logs`, over files as services write them; and `hedgerow down` where there is nothing to end."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hedgerow_cli import log_files
from hedgerow_cli import running as state
from hedgerow_cli.app import app
from hedgerow_cli.log_files import Log, named
from tests.listings import running


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def logs() -> Path:
    folder = Path(".hedgerow/meshes/prod/logs")
    folder.mkdir(parents=True)
    (folder / "gateway.log").write_text("one\ntwo\nthree\n")
    (folder / "llm-fast-1.log").write_text("a\nb")
    (folder / "llm-fast-2.log").write_text("")
    return folder


def shown(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["logs", *arguments])


def test_each_line_begins_with_its_service(logs: Path) -> None:
    assert shown().stdout.splitlines() == [
        *("gateway | one", "gateway | two", "gateway | three"),
        *("llm-fast-1 | a", "llm-fast-1 | b"),
    ]


def test_the_log_of_one_service_is_shown_unchanged(logs: Path) -> None:
    assert shown("gateway", "--tail", "2").stdout == "two\nthree\n"
    assert shown("gateway", "--tail", "0").stdout == ""
    assert shown("llm-fast-1").stdout == "a\nb\n"


def test_a_name_of_several_replicas_means_all(logs: Path) -> None:
    assert list(named(logs.parent, "llm-fast")) == ["llm-fast-1", "llm-fast-2"]
    assert shown("llm-fast").stdout.splitlines() == ["llm-fast-1 | a", "llm-fast-1 | b"]


def test_for_programs_each_line_is_an_object(logs: Path) -> None:
    (logs / "gateway.log").write_bytes(b'{"a": 1}\xff\n')
    assert [json.loads(line) for line in shown("gateway", "--json").stdout.splitlines()] == [
        {"service": "gateway", "line": '{"a": 1}\ufffd'}
    ]


def test_the_mesh_that_runs_comes_before_the_last_one_and_that_one_before_others(logs: Path) -> None:
    other = Path(".hedgerow/logs")
    other.mkdir()
    (other / "gateway.log").write_text("of the demo\n")
    os.utime(other / "gateway.log", (1, 1))
    assert shown("gateway", "--tail", "1").stdout == "three\n"
    with running(other.parent, [{"name": "gateway", "address": "127.0.0.1:1"}]):
        assert shown("gateway").stdout == "of the demo\n"
    assert shown("gateway", "--state-dir", ".hedgerow").stdout == "of the demo\n"


def test_a_log_of_a_stopped_mesh_is_not_followed(logs: Path) -> None:
    result = shown("gateway", "--follow", "--tail", "1")
    assert (result.exit_code, result.stdout) == (0, "three\n")
    assert "no mesh runs in .hedgerow/meshes/prod: there is nothing to follow" in result.stderr


def test_unknown_services_and_folders_are_refused(logs: Path) -> None:
    refused = shown("gatewy")
    assert refused.exit_code == 2
    assert "did you mean gateway?" in refused.stderr
    assert "there are gateway, llm-fast-1, llm-fast-2" in " ".join(shown("zzz").stderr.split())
    assert "no mesh has run in elsewhere; name its state folder" in shown("--state-dir", "elsewhere").stderr
    assert "equal to 100000" in shown("--tail", "100001").stderr


def test_a_log_is_read_from_its_end_in_blocks_and_goes_on_there(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    lines = [f"{number:08} {'x' * (number % 300)}" for number in range(2_000)]
    file.write_text("\n".join(lines))
    log = Log(file)
    assert log.last(1_500) == lines[-1_501:-1]
    assert log.rest() == lines[-1:]
    with file.open("a") as more:
        more.write(" ends\nnext\nhalf")
    assert list(log.more()) == [f"{lines[-1]} ends", "next"]
    file.write_text("cut\n")
    assert list(log.more()) == ["cut"]
    assert list(log.more()) == log.rest() == []


def test_lines_of_a_shared_log_have_the_names_of_their_services() -> None:
    folder = Path(".hedgerow/logs")
    folder.mkdir(parents=True)
    began = "2026-11-26 07:24:45,576 INFO"
    lines = [f"{began} router a [-] one", f"{began} llm-b a [-] two", "Traceback", f"{began} llm-a a [-] three"]
    (folder / "hedgerow.log").write_text("\n".join(lines) + "\n")
    assert shown("router").stdout.splitlines() == lines[:1]
    assert shown("llm-b").stdout.splitlines() == lines[1:3]
    assert shown("llm-b", "--tail", "1").stdout.splitlines() == ["Traceback"]
    assert shown("llm").stdout.splitlines() == [f"llm-a | {lines[3]}", *(f"llm-b | {line}" for line in lines[1:3])]
    names = ("router", "llm-b", "llm-b", "llm-a")
    assert shown().stdout.splitlines() == [f"{name} | {line}" for name, line in zip(names, lines, strict=True)]
    assert "there are hedgerow, llm-a, llm-b, router" in " ".join(shown("cache").stderr.split())


def test_a_long_shared_log_is_read_a_few_times_also_while_it_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(".hedgerow/logs/hedgerow.log")
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"2026-11-26 07:24:45,576 INFO router a [-] {number:08}\n" for number in range(20_000)))
    reads = list[int]()

    class Counted(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            reads.append(len(found := super().read(size)))
            return found

    looks = iter([True] * 20)
    monkeypatch.setattr(log_files, "_BLOCK", 64)
    monkeypatch.setattr(log_files, "MOST_AT_ONCE", 4_096)
    monkeypatch.setattr(log_files, "open", lambda path, _: Counted(path), raising=False)
    monkeypatch.setattr(state, "is_held", lambda _: next(looks, False))
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert shown("router", "--follow", "--tail", "2").stdout.split()[-1] == "00019999"
    assert sum(reads) < 4 * file.stat().st_size
    reads.clear()
    assert len(Log(file).last(10_000)) == 10_000
    assert len(reads) < 20


def test_down_without_a_mesh_succeeds_with_a_message() -> None:
    done = CliRunner().invoke(app, ["down"])
    assert (done.exit_code, done.stdout) == (0, "no mesh runs in .hedgerow: nothing to end\n")


def test_down_signals_no_process_of_a_listing_that_a_killed_mesh_left() -> None:
    Path(".hedgerow").mkdir()
    Path(".hedgerow/running.json").write_text(json.dumps({"pid": os.getpid(), "services": []}))
    assert json.loads(CliRunner().invoke(app, ["down", "--json"]).stdout) == {"ended": []}
