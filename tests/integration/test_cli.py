"""The command line as its users run it: a process, its output and its exit code. The gateway is scripted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.integration.command import launch, run
from tests.integration.running_up import ports_in_a_row
from tests.integration.scripted import Hold, Refusal
from tests.integration.scripted_gateway import (
    TRACE_ID,
    ScriptedGateway,
    accepted,
    answer,
    deltas,
    serve_script,
)


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    async with serve_script() as served:
        yield served


async def test_asking_prints_the_answer_and_where_the_time_went(gateway: ScriptedGateway) -> None:
    gateway.script = answer("It is ", "Paris.")
    code, out, err = await run("ask", "What is the capital of France?", "--gateway", gateway.target)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "It is Paris."
    assert any(line.startswith("llm ") and "█" in line for line in lines)
    assert "demo-llm · stop · cache miss 0.25 · 2 of 4 drafted tokens accepted" in lines
    assert lines[-1] == f"trace {TRACE_ID}"
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in out


async def test_a_question_may_come_from_stdin_and_the_answer_alone_go_out(gateway: ScriptedGateway) -> None:
    gateway.script = answer("Paris.")
    code, out, _ = await run("ask", "-", "--no-waterfall", stdin="Which city?\n", HEDGEROW_TARGET=gateway.target)
    assert (code, out) == (0, "Paris.\n")
    assert gateway.requests[0].messages[0].content == "Which city?\n"


async def test_options_reach_the_gateway(gateway: ScriptedGateway) -> None:
    gateway.script = answer("Paris.")
    await run(
        "ask", "?", "--gateway", gateway.target, "--api-key", "secret", "--budget-ms", "300", "--cache", "bypass",
        "--tier", "quality", "--model", "demo-llm", "--max-tokens", "9", "--temperature", "0.5",
        "--system", "Be brief.",
    )  # fmt: skip
    assert gateway.requests == [
        pb.GenerateRequest(
            messages=[
                chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content="Be brief."),
                chat_pb2.Message(role=chat_pb2.ROLE_USER, content="?"),
            ],
            tier=pb.TIER_QUALITY,
            model="demo-llm",
            budget_ms=300,
            sampling=chat_pb2.Sampling(max_tokens=9, temperature=0.5),
            cache=pb.CachePolicy(bypass=True),
        )
    ]
    assert gateway.metadata["authorization"] == "Bearer secret"


async def test_json_is_one_object_and_nothing_else(gateway: ScriptedGateway) -> None:
    gateway.script = answer("It is ", "Paris.")
    code, out, err = await run("ask", "?", "--json", "--gateway", gateway.target)
    said = json.loads(out)
    assert (code, err, said["text"], said["finish_reason"]) == (0, "", "It is Paris.", "stop")
    assert said["ttft_ms"] == 41.5
    assert said["client"]["first_token_ms"] > 0


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (chat_pb2.FINISH_REASON_LENGTH, 0),
        (chat_pb2.FINISH_REASON_BUDGET, 0),
        (chat_pb2.FINISH_REASON_INTERRUPTED, 1),
    ],
)
async def test_only_an_interrupted_answer_fails(gateway: ScriptedGateway, reason: Any, code: int) -> None:
    gateway.script = answer("It is ", finish_reason=reason)
    for form in ("--json", "--no-waterfall"):
        assert (await run("ask", "?", form, "--gateway", gateway.target))[0] == code


async def test_an_error_in_the_middle_keeps_the_text_and_says_why(gateway: ScriptedGateway) -> None:
    gateway.script = [accepted(), *deltas("It is "), Refusal("UNAVAILABLE", "no model answers", "NO_MODEL")]
    code, out, err = await run("ask", "?", "--gateway", gateway.target)
    assert (code, out) == (1, "It is \n")
    assert err == f"hedgerow: no model answers (trace {TRACE_ID})\n"


async def test_ctrl_c_stops_the_engine_at_once(gateway: ScriptedGateway) -> None:
    gateway.script = [accepted(), *deltas("It is "), Hold()]
    process = await launch("ask", "?", "--gateway", gateway.target)
    assert process.stdout is not None
    assert await process.stdout.read(5) == b"It is"
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(gateway.cancelled.wait(), 20)
    _, err = await process.communicate()
    assert process.returncode not in (0, None)
    assert b"Traceback" not in err


async def test_chat_remembers_the_conversation_until_it_is_reset(gateway: ScriptedGateway) -> None:
    gateway.script = answer("Paris.")
    typed = "Capital of France?\n\nAnd of Spain?\n/reset\nHi.\n/help\n/quit\nnever sent\n"
    code, out, err = await run("chat", "--gateway", gateway.target, stdin=typed)
    assert (code, err) == (0, "")
    said = [[message.content for message in request.messages] for request in gateway.requests]
    assert said == [["Capital of France?"], ["Capital of France?", "Paris.", "And of Spain?"], ["Hi."]]
    assert out.count("Paris.\n") == 3


async def test_ctrl_c_in_a_chat_stops_the_answer_and_not_the_chat(gateway: ScriptedGateway) -> None:
    gateway.script = [accepted(), *deltas("It is "), Hold()]
    process = await launch("chat", "--gateway", gateway.target)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"Which city?\n")
    await process.stdout.readuntil(b"It is ")
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(gateway.cancelled.wait(), 20)
    out, err = await process.communicate(b"/quit\n")
    assert (process.returncode, err) == (0, b"")
    assert b"(stopped)" in out


async def test_chat_goes_on_after_an_error(gateway: ScriptedGateway) -> None:
    gateway.script = [Refusal("RESOURCE_EXHAUSTED", "too busy", "SHED")]
    code, _, err = await run("chat", "--gateway", gateway.target, stdin="One?\nTwo?\n")
    assert (code, err) == (0, "hedgerow: too busy\n" * 2)
    assert [len(request.messages) for request in gateway.requests] == [1, 1]


@pytest.fixture
def no_models(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has no model, and reaches none."""
    nothing = {"HEDGEROW_MODELS_CACHE": str(tmp_path / "models"), "HF_ENDPOINT": "http://127.0.0.1:1"}
    return {**nothing, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture
def busy() -> Iterator[int]:
    """A port that another process has."""
    with socket.create_server(("127.0.0.1", port := ports_in_a_row(7))):
        yield port


async def test_up_names_a_busy_port_and_how_to_choose_others_before_it_pulls_models(
    tmp_path: Path, no_models: dict[str, str], busy: int
) -> None:
    up = ("up", "--demo", "--base-port", str(busy), "--state-dir", str(tmp_path))
    code, _, err = await run(*up, **no_models)
    assert code == 1
    assert err == (
        f"hedgerow: port {busy}, which gateway needs, is in use; "
        f"choose others, for example: hedgerow up --demo --base-port {busy + 1000}\n"
    )
    assert not (tmp_path / "running.json").exists()


async def test_a_busy_port_of_a_mesh_file_is_named_before_its_models_are_pulled(
    tmp_path: Path, no_models: dict[str, str], busy: int
) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(f"models: {{small: smollm2-135m-int8}}\ngateway: {{address: {busy}}}\n")
    code, _, err = await run("up", str(file), "--state-dir", str(tmp_path / "state"), **no_models)
    assert code == 1
    assert err.startswith(f"hedgerow: port {busy}, which gateway needs, is in use; choose others in {file}: ")
