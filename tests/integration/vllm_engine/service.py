"""The llm service as a process of its own, and what it is asked."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from dataclasses import dataclass, replace
from typing import Any

import grpc
import psutil
import pytest
from google.rpc import error_details_pb2, status_pb2

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from launcher.processes import ServiceSpec
from tests.forked import ServiceProcess
from tests.models import MODELS

START_S = 600  # an engine imports torch three times over: a minute, and several where cores are few and busy
FRANCE = "What is the capital of France?"
STORY = "Tell me a long story about a fox."
WITHOUT_END = chat_pb2.LogitBias(token=1, bias=-100)  # nor speculation
USER, ASSISTANT = chat_pb2.ROLE_USER, chat_pb2.ROLE_ASSISTANT


@dataclass(frozen=True)
class Service:
    """A running service and how to reach it."""

    process: ServiceProcess
    stub: Any
    metrics: str

    async def ask(self, question: str, **sampling: Any) -> tuple[str, llm_pb2.Finish]:
        """The whole answer and how it ended."""
        return await self.answer(ask(question, **sampling))

    async def answer(self, request: llm_pb2.GenerateRequest) -> tuple[str, llm_pb2.Finish]:
        replies = [reply async for reply in self.stub.Generate(request, timeout=60)]
        assert [reply.HasField("finish") for reply in replies] == [False] * (len(replies) - 1) + [True]
        assert sum(reply.tokens for reply in replies) == replies[-1].finish.usage.completion_tokens
        return "".join(reply.text for reply in replies), replies[-1].finish

    async def refusal(self, request: llm_pb2.GenerateRequest) -> tuple[grpc.StatusCode, str, str]:
        """Code, the field at fault and the text of a call that must fail."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.answer(request)
        status = status_pb2.Status.FromString(dict(caught.value.trailing_metadata())["grpc-status-details-bin"])
        info = error_details_pb2.ErrorInfo()
        status.details[0].Unpack(info)
        return caught.value.code(), info.metadata["field"], caught.value.details()

    async def model(self) -> llm_pb2.GetModelResponse:
        reply: llm_pb2.GetModelResponse = await self.stub.GetModel(llm_pb2.GetModelRequest(), timeout=30)
        return reply

    async def gauge(self, name: str) -> float:
        """The value of a metric without looking at its labels."""
        lines = (await self.page()).splitlines()
        (value,) = (float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))
        return value

    async def page(self) -> str:
        """All metrics."""
        return await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{self.metrics}/metrics").read().decode())


def ask(
    question: str, response_format: chat_pb2.ResponseFormat | None = None, **sampling: Any
) -> llm_pb2.GenerateRequest:
    return llm_pb2.GenerateRequest(
        messages=[chat_pb2.Message(role=USER, content=question)],
        sampling=chat_pb2.Sampling(**{"temperature": 0, **sampling}),
        response_format=response_format,
    )


def begun(prefix: str) -> llm_pb2.GenerateRequest:
    """A question whose answer has begun already."""
    request = ask(FRANCE)
    request.prefix = prefix
    return request


CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/City"}, "days": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"City": {"enum": ["Oslo", "Rome"]}},
}
WEATHER = chat_pb2.Tool(name="weather", description="Tells the weather.", parameters=json.dumps(CITY))
CLOCK = chat_pb2.Tool(name="clock")


def offering(choice: chat_pb2.ToolChoice | None = None, **fields: Any) -> llm_pb2.GenerateRequest:
    request = ask(FRANCE, **fields)
    request.tools.extend([WEATHER, CLOCK])
    request.tool_choice.CopyFrom(choice or chat_pb2.ToolChoice())
    return request


async def called(service: Service, request: llm_pb2.GenerateRequest) -> list[tuple[str, Any]]:
    """The name and the arguments of each call of an answer that is nothing else."""
    replies = [reply async for reply in service.stub.Generate(request, timeout=60)]
    assert "".join(reply.text for reply in replies) == ""
    finish = replies[-1].finish
    assert finish.reason == chat_pb2.FINISH_REASON_TOOL_CALLS
    assert sum(reply.tokens for reply in replies) == finish.usage.completion_tokens > 0
    calls: list[tuple[str, str]] = []
    for delta in (delta for reply in replies for delta in reply.tool_calls):
        assert bool(delta.id) == bool(delta.name) == (delta.index == len(calls))
        if delta.id:
            calls.append((delta.name, ""))
        calls[delta.index] = (calls[delta.index][0], calls[delta.index][1] + delta.arguments)
    return [(name, json.loads(arguments)) for name, arguments in calls]


def spec(name: str, address: str, **settings: str) -> ServiceSpec:
    settings = {
        "ADDRESS": address,
        "MODEL_NAME": "demo-llm",
        "VLLM__MODEL": str(MODELS / "demo-llm"),
        "VLLM__MAX_MODEL_LEN": "1024",
        "VLLM__ENFORCE_EAGER": "true",
        "VLLM__CPU_KVCACHE_SPACE_GIB": "0.25",
        **settings,
    }
    return ServiceSpec(name, "services.llm", address, {f"HEDGEROW_LLM_{key}": value for key, value in settings.items()})


def meeting_in(folder: str, wanted: ServiceSpec) -> ServiceSpec:
    """The same, with all that its processes leave for each other in `folder`. Its path is to be shorter than those of
    pytest: that of a socket is short."""
    return replace(wanted, environment={**wanted.environment, "TMPDIR": folder})


def family(process: ServiceProcess) -> list[psutil.Process]:
    """The service's process and everything it has started."""
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


async def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
