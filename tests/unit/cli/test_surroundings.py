"""Commands in other surroundings than a terminal with UTF-8: locales, `nohup`, texts of others."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from hedgerow import ListedTool, StageReport, ToolSource
from hedgerow_cli import main
from hedgerow_cli.app import app
from hedgerow_cli.failures import notify
from hedgerow_cli.input_options import json_text
from hedgerow_cli.screen import print_report
from hedgerow_cli.signals import cancelled_by_signals
from hedgerow_cli.status import show
from hedgerow_cli.terminal import PlainConsole
from hedgerow_cli.tools import _table
from hedgerow_cli.warm import _line
from services.runtime.process.config import read_yaml
from tests.unit.cli.answers import an_answer

UNKNOWN = {"before_ms": None, "after_ms": None}


def test_ctrl_c_while_the_command_line_is_loaded_ends_it_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "hedgerow_cli.app", Interrupted("hedgerow_cli.app"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_a_locale_without_a_character_ends_no_command_and_bytes_that_are_no_text_reach_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr("hedgerow_cli.app.app", lambda **_: print("\u25b2", ascii(sys.stdin.read()), flush=True))
    main()
    assert out.buffer.getvalue() == b"\\u25b2 'caf\\udce9'\n"


def test_a_stream_that_the_caller_has_closed_is_the_null_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, None)
    read = list[str]()

    def command(**_: object) -> None:
        with sys.stdin, sys.stdout:
            read.append(sys.stdin.read())
            print("lost")

    monkeypatch.setattr("hedgerow_cli.app.app", command)
    main()
    assert read == [""]


def test_an_error_of_the_environment_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEDGEROW_PING_TIMEOUT_MS", "soon")
    monkeypatch.setattr(sys, "argv", ["hedgerow", "status", "--state-dir", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"^hedgerow: HEDGEROW_PING_TIMEOUT_MS: .* got soon$"):
        main()


def test_files_are_utf_8_in_every_locale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = list[str]()

    async def ask(questions: list[str], *_: object) -> list[None]:
        asked.extend(questions)
        return []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(io, "text_encoding", lambda given, *_: given or "latin-1")
    monkeypatch.setattr("hedgerow_cli.cache._ask_questions", ask)
    Path("a").write_bytes('{"é": 1}'.encode())
    CliRunner().invoke(app, ["cache", "warm", "a"])
    CliRunner().invoke(app, ["init", "--yes", "--model", "./é", "mesh.yaml"])
    assert (json_text("a", "--tool"), asked, read_yaml("a")) == ('{"é": 1}', ['{"é": 1}'], {"é": 1})
    assert "é".encode() in Path("mesh.yaml").read_bytes()


def test_texts_of_others_are_no_markup_and_no_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    failed = ListedTool("weather", "", "", "files", True, 0, "", "no file [/etc/x]\x1b[2J")
    PlainConsole(width=80).print(_table((failed,), (ToolSource("files", "mcp", "[/] is away"),)))
    show([{"name": "gateway", "address": "[fd00::1]:50050", "health": "UNREACHABLE"}])
    show([{"name": "llm", "address": "127.0.0.1:1", "health": "SERVING", "problem": "refused: \x1b]0;title\x07"}])
    failed_stage = StageReport("llm", 10, 0.1, 0, "failed", "it says \x1b[5m \x9b6n")
    print_report(PlainConsole(width=100), an_answer(stages=(failed_stage,), model="m\x1b[1m"))
    notify("the provider says \x1b[2J")
    print(
        _line({"kind": "engine", "replica": "m#1", "prompt": "", "took_ms": 1.0, "problem": "says \x1b[3J", **UNKNOWN})
    )
    out, err = capsys.readouterr()
    assert "no file [/etc/x][2J" in out
    assert "[/] is away" in out
    assert "refused: ]0;title\n" in out
    assert "it says [5m 6n" in out
    assert "\nm[1m · " in out
    assert not {"\x07", "\x1b", "\x9b"} & {*out}
    assert out.endswith("  says [3J\n")
    assert out.count("[fd00::1]:50050") == 2
    assert err == "hedgerow: the provider says [2J\n"


async def test_a_command_under_nohup_outlives_its_terminal() -> None:
    before, lives = signal.signal(signal.SIGHUP, signal.SIG_IGN), False
    try:
        with cancelled_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.01)
            lives = True
    finally:
        signal.signal(signal.SIGHUP, before)
    assert lives
