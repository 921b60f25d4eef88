"""The command line, as far as it goes without a gateway."""

from __future__ import annotations

import json
import sys
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hedgerow import DeadlineExceeded, HedgerowError, MeshTool, ResourceExhausted, Unauthenticated, Unavailable
from hedgerow.cache.v1 import cache_pb2
from hedgerow_cli import main
from hedgerow_cli.app import app
from hedgerow_cli.bench import benches
from hedgerow_cli.failures import explain, reported
from hedgerow_cli.input_options import mesh_tools, own_tools, read_tool
from hedgerow_cli.screen import written_as_it_comes
from tests import listings

COMMANDS = ["init", "check", "up", "render", "ask", "chat", "transcribe", "classify", "status", "mesh status", "bench"]
COMMANDS += ["certs", "keys create", "keys list", "keys revoke", "down", "logs", "models served", "config explain"]
COMMANDS += ["warm", "cache stats", "cache clear", "cache warm"]
COMMANDS += [f"collection {name}" for name in ("put", "list", "search", "remove", "drop")]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_teaches_by_example(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"    hedgerow {command}" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask"],
        ["ask", "?", "--tier", "best"],
        ["ask", "?", "--budget-ms", "soon"],
        ["ask", "?", "--json-schema", "{"],
        ["ask", "?", "--json-schema", "[]"],
        ["ask", "?", "--json-schema", '{"a":' * 5_000],
        ["ask", "?", "--tool", "not-there.json"],
        ["ask", "?", "--stream"],
        ["ask", "?", "--stream", "--audio", "question.wav"],
        ["ask", "?", "--pause-ms", "300"],
        ["transcribe"],
        ["transcribe", "talk.wav", "--pause-ms", "300"],
        ["transcribe", "talk.wav", "--policy", "windows"],
        ["classify"],
        ["certs", "--dir", "certs", "--dns", "bücher.example"],
        ["fly"],
        ["up", "--port"],
        ["up", "--mesh", "--replicas", "0"],
        ["up", "--tls"],
        ["up", "--mesh", "--otlp-endpoint", "http://host:port"],
        ["up", "mesh.yaml", "--otlp-endpoint", "http://127.0.0.1:4317"],
        ["init", "--yes", "mesh.yaml"],
        ["init", "--yes", "--model", "openai:", "mesh.yaml"],
        ["init", "--yes", "--model", "a/b", "--callers", "all", "mesh.yaml"],
        ["render", "swarm", "mesh.yaml"],
        ["render"],
        ["mesh", "status", "extra"],
    ],
)
def test_wrong_use_exits_with_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage:" in result.stderr


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            Unavailable("no gateway at x:1", reason="NO_GATEWAY", retry_delay_s=1.5, trace_id="abc"),
            'no gateway at x:1; start one with "hedgerow up"; try again in 1.5 s (trace abc)',
        ),
        (  # an option that only the SDK has
            DeadlineExceeded("no text within 4 ms; allow_fallback=True returns the gateway's fixed text"),
            "no text within 4 ms",
        ),
        (ResourceExhausted("busy; retry in 0.4 s", retry_delay_s=0.4), "busy; retry in 0.4 s"),
        (
            Unauthenticated("no", reason="KEY_UNKNOWN"),
            "no; set HEDGEROW_API_KEY to a key of the gateway, or pass it with --api-key",
        ),
    ],
    ids=lambda given: getattr(given, "reason", None),
)
def test_an_error_says_what_to_do_once_and_in_the_words_of_the_command_line(error: HedgerowError, text: str) -> None:
    assert explain(error) == text


def test_a_full_disk_is_a_line_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("hedgerow_cli.app.app", full)
    with pytest.raises(SystemExit, match=r"^hedgerow: No space left on device$"):
        main()


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "--json", "nothing"],
        ["bench", "--json"],
        ["bench", "--json", "overhead", "--entries", "5000"],
        ["cache", "warm", "--json", "nothing"],
        ["cache", "stats", "--json", "--state-dir", "mesh"],
        ["collection", "list", "--json", "--state-dir", "mesh"],
        ["collection", "put", "--json", "a", "nothing"],
        ["collection", "put", "--json", "a", "mesh"],
    ],
)
def test_with_json_there_is_one_object_also_where_a_command_cannot_begin(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with listings.running(Path("mesh"), [{"name": "gateway", "address": "127.0.0.1:1"}]):
        result = CliRunner().invoke(app, command)
    assert result.exit_code == ("benches" not in json.loads(result.stdout))
    assert result.stderr == ""


def test_a_failure_as_json_is_one_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    made = {"policy": "breaker", "action": "refused", "subject": "m", "reason": "5 of 5 failed", "at_ms": 1.5}
    with pytest.raises(typer.Exit) as caught, reported(as_json=True):
        raise Unavailable("it broke", reason="BROKEN", metadata={"decisions": json.dumps([made])})
    assert caught.value.exit_code == 1
    out, err = capsys.readouterr()
    error = {"code": "UNAVAILABLE", "reason": "BROKEN", "message": "it broke", "retry_delay_s": None}
    assert json.loads(out) == {"error": error, "decisions": [made]}
    assert err == ""


def test_streamed_text_ends_its_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    with written_as_it_comes() as write:
        write("a\n")
        write("b")
        write("")
    with written_as_it_comes() as write:
        write("c\n")
    with written_as_it_comes():
        pass
    assert capsys.readouterr().out == "a\nb\nc\n"


def test_a_terminal_is_not_given_control_codes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with written_as_it_comes() as write:
        write("a\x1b[2Jb\x07\tc\x9b\n")
    assert capsys.readouterr().out == "a[2Jb\tc\n"


def test_an_empty_key_is_refused_by_the_cache_and_clears_no_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[cache_pb2.InvalidateRequest] = []

    class Cache:
        async def Invalidate(
            self, request: cache_pb2.InvalidateRequest, timeout: float
        ) -> cache_pb2.InvalidateResponse:
            asked.append(request)
            return cache_pb2.InvalidateResponse()

    async def ask_all(_: object, ask: Any) -> list[int]:
        return [await ask(Cache())]

    monkeypatch.setattr("hedgerow_cli.cache._ask_all", ask_all)
    for options in ([], ["--key", ""], ["--key", "ab"]):
        CliRunner().invoke(app, ["cache", "clear", "--cache", "127.0.0.1:1", *options])
    assert asked == [
        cache_pb2.InvalidateRequest(tenant="local"),
        cache_pb2.InvalidateRequest(key=""),
        cache_pb2.InvalidateRequest(key="ab"),
    ]


def test_a_bench_is_a_module_or_a_package_that_runs(tmp_path: Path) -> None:
    (tmp_path / "speed.py").write_text('"""How fast.\n\nMore."""\nasync def run(progress): ...\n')
    (tmp_path / "helper.py").write_text("def run(): ...\n")
    (tmp_path / "load").mkdir()
    (tmp_path / "load" / "__init__.py").write_text('"""How much."""\nasync def run(progress): ...\n')
    (tmp_path / "load" / "arms.py").write_text("async def run(progress): ...\n")
    assert benches(tmp_path) == {"load": "How much.", "speed": "How fast."}
    assert benches(tmp_path / "nowhere") == {}


def test_a_bench_takes_the_options_that_it_knows(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["bench", "overhead", "--entries", "5000"])
    assert refused.exit_code == 1
    assert "bench overhead has no option --entries" in refused.stderr
    pairs = tmp_path / "pairs.jsonl.gz"
    pairs.write_text("no gzip")
    refused = CliRunner().invoke(app, ["bench", "cache", "--pairs", str(pairs)])
    assert refused.exit_code == 1
    assert "pairs.jsonl.gz cannot be read: Not a gzipped file" in refused.stderr


@pytest.mark.parametrize(
    "command",
    [["ask", "?"], ["ask", "?", "--json"], ["chat"], ["classify", "a.png", "--vision"], ["transcribe", "a.wav"]],
)
def test_a_key_is_not_sent_in_plain_text_to_another_machine_and_the_error_names_the_option_that_allows_it(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TARGET", "TARGET_VISION", "TARGET_AUDIO"):
        monkeypatch.setenv(f"HEDGEROW_{name}", "gw.example:50050")
    arguments = [*command, "gw.example:50050"] if command[-1] == "--vision" else command
    result = CliRunner().invoke(app, arguments, env={"HEDGEROW_API_KEY": "sesame"})
    assert result.exit_code == 1
    assert result.exception is None or isinstance(result.exception, SystemExit)
    (said,) = result.output.splitlines()
    assert "gw.example:50050" in said
    assert "--plaintext-key" in said
    assert "sesame" not in said


def test_a_tool_is_read_bare_or_as_chat_apis_wrap_it(tmp_path: Path) -> None:
    file, clock = tmp_path / "clock.json", {"name": "clock", "parameters": {"type": "object"}}
    for written in (clock, {"type": "function", "function": clock}):
        file.write_text(json.dumps(written))
        assert (read_tool(file).name, read_tool(file).parameters) == ("clock", {"type": "object"})
    file.write_text(json.dumps({"name": "clock", "arguments": {}}))
    with pytest.raises(typer.BadParameter, match="name, description, parameters and strict, got name, arguments"):
        read_tool(file)


def test_an_option_names_a_tool_of_the_mesh_or_a_file_and_may_have_arguments(tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    file.write_text(json.dumps({"name": "clock"}))
    given = ["weather", 'news={"about": "foxes"}', str(file)]
    assert [tool.name for tool in own_tools(given)] == ["clock"]
    assert mesh_tools(given, None, ["manual"], agent=False) == [
        MeshTool("weather"),
        MeshTool("news", '{"about": "foxes"}'),
        MeshTool("search_manual"),
    ]
    assert mesh_tools(["weather"], ["files"], None, agent=True) == [
        MeshTool("weather", offered=True),
        MeshTool(source="files"),
    ]
    with pytest.raises(typer.BadParameter, match="with --agent the model chooses the arguments"):
        mesh_tools(["news={}"], None, None, agent=True)


def test_the_demo_says_that_it_needs_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("hedgerow_cli.demo.SAMPLES", tmp_path / "samples")
    result = CliRunner().invoke(app, ["demo"])
    assert (result.exit_code, "needs a clone of the repository" in result.stderr) == (1, True)


def test_status_says_that_it_asked_the_default_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def found(*_: object) -> tuple[list[dict[str, str]], None]:
        return [{"name": "gateway", "address": "127.0.0.1:50050", "health": "SERVING"}], None

    monkeypatch.setattr("hedgerow_cli.status._ask_mesh", found)
    result = CliRunner().invoke(app, ["status", "--state-dir", str(tmp_path)])
    assert result.exit_code == 0
    assert "asked the default address of each service" in result.stderr


def test_status_says_that_no_mesh_runs_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def unreachable(*_: object) -> str:
        return "UNREACHABLE"

    monkeypatch.setattr("launcher.processes.check", unreachable)
    result = CliRunner().invoke(app, ["status", "--state-dir", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"no mesh runs here (state folder {tmp_path})" in result.stderr
