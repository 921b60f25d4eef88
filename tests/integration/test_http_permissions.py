"""What costs or keeps something at a provider beyond the answer: refused by name, or sent on as it is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import pytest_asyncio

from launcher.processes import free_port
from services.gateway.settings.permissions import PERMISSIONS
from tests.conftest import starting
from tests.recording_provider import CHAT, RecordingProvider, recording_provider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
_POOR, _RICH, _COUNTED = "key of the poor", "key of the rich", "key of the counted"
_PER_MINUTE = 6_000
_SAME = {name: CHAT[0][name] for name in ("id", "object", "created", "model")}


def _choice(index: int, content: str = "", finish: str | None = None) -> dict[str, Any]:
    delta = {"content": content} if content else {}
    return {**_SAME, "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


# The first one ends before the others do.
_THREE = (
    _choice(0, "Tok"),
    _choice(1, "It is "),
    _choice(0, "yo.", "stop"),
    _choice(2, "Japan's"),
    _choice(1, "Tokyo", "length"),
    _choice(2, " is Tokyo.", "stop"),
    {**_SAME, "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 60, "total_tokens": 69}},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[RecordingProvider, str]]:
    """The provider, and a gateway before its two APIs, for a tenant that may not, and two that may all: one of them has
    a limit of tokens."""
    port = free_port()
    tenants = {
        "poor": {"keys": [hashlib.sha256(_POOR.encode()).hexdigest()]},
        "rich": {"keys": [hashlib.sha256(_RICH.encode()).hexdigest()], "provider": PERMISSIONS},
        "counted": {
            "keys": [hashlib.sha256(_COUNTED.encode()).hexdigest()],
            "provider": PERMISSIONS,
            "tokens_per_minute": _PER_MINUTE,
        },
    }
    async with recording_provider() as provider, starting(tmp_path_factory.mktemp("logs")) as start:
        own = {"base_url": provider.url, "api_key": "the operator's"}
        of_openai = {f"openai__{name}": value for name, value in own.items()}
        chat = await start("llm", "chat", engine="openai", openai__model="gpt-x", **of_openai)
        of_anthropic = {f"anthropic__{name}": value for name, value in own.items()}
        claude = await start("llm", "claude", engine="anthropic", anthropic__model="claude-x", **of_anthropic)
        await start(
            "gateway",
            llm_addresses=json.dumps({"gpt": chat.spec.address, "claude": claude.spec.address}),
            cache_address="",
            router_address="",
            http_address=f"127.0.0.1:{port}",
            profile="transparent",
            tenants=json.dumps(tenants),
        )
        yield provider, f"http://127.0.0.1:{port}"


@pytest.fixture
def provider(served: tuple[RecordingProvider, str]) -> RecordingProvider:
    served[0].reset()
    return served[0]


@pytest_asyncio.fixture(loop_scope="module")
async def http(served: tuple[RecordingProvider, str]) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served[1], timeout=20) as client:
        yield client


def _headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def _ask(*parts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    content: Any = [{"type": "text", "text": "What is it?"}, *parts] if parts else "What is the capital of Japan?"
    return {"messages": [{"role": "user", "content": content}], **more}


# One field of each kind: tests/unit/gateway/admission/test_permissions.py has all.
_CHATS: dict[str, dict[str, Any]] = {
    "n": _ask(n=3),
    "modalities": _ask(modalities=["text", "audio"], audio={"voice": "ash", "format": "pcm16"}),
    "messages[0].content[1]": _ask({"type": "file", "file": {"file_id": "file-1"}}),
}
_MESSAGES: dict[str, dict[str, Any]] = {
    "tools[0]": _ask(
        tools=[{"type": "code_execution_20250825", "name": "code_execution"}],
        tool_choice={"type": "tool", "name": "code_execution"},
    ),
    "mcp_servers": _ask(mcp_servers=[{"type": "url", "url": "https://a.example/mcp", "name": "a"}]),
    "messages[0].content[1]": _ask({"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
}
_OURS = {"model", "stream", "stream_options"}


def _requests() -> list[Any]:
    chats = [("/v1/chat/completions", "gpt", place, body) for place, body in _CHATS.items()]
    return chats + [("/v1/messages", "claude", place, {"max_tokens": 50, **body}) for place, body in _MESSAGES.items()]


@pytest.mark.parametrize(("path", "model", "place", "body"), _requests())
async def test_fields_are_refused_by_name_without_permission_and_sent_with_it(
    http: httpx.AsyncClient, provider: RecordingProvider, path: str, model: str, place: str, body: dict[str, Any]
) -> None:
    reply = await http.post(path, json={"model": model, **body}, headers=_headers(_POOR))
    assert reply.status_code == 403, reply.text
    message = reply.json()["error"]["message"]
    assert message.startswith(f"{place}: "), message
    assert "in the tenant's settings permits it" in message
    assert provider.asked == []
    reply = await http.post(path, json={"model": model, **body}, headers=_headers(_RICH))
    assert reply.status_code == 200, reply.text
    (asked,) = provider.asked
    assert {name: given for name, given in asked.body.items() if name not in _OURS} == body


@pytest.mark.parametrize(
    ("path", "model", "place", "body"),
    [each for each in _requests() if each[2] != "n"],
)
async def test_a_model_behind_another_api_refuses_such_fields_by_name(
    http: httpx.AsyncClient, provider: RecordingProvider, path: str, model: str, place: str, body: dict[str, Any]
) -> None:
    other = {"gpt": "claude", "claude": "gpt"}[model]
    reply = await http.post(path, json={"model": other, **body}, headers=_headers(_RICH))
    assert reply.status_code == 400, reply.text
    named = reply.json()["error"]["message"].partition(":")[0]
    about = (place, f"{place}.file.file_data", "tool_choice", "audio")
    assert named in about, "the message names one of the refused fields"
    assert provider.asked == []


async def test_client_side_tools_and_parts_in_the_request_need_no_permission(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "eA=="}}
    body = _ask(pdf, max_tokens=50, tools=[{"type": "bash_20250124", "name": "bash"}])
    reply = await http.post("/v1/messages", json={"model": "claude", **body}, headers=_headers(_POOR))
    assert reply.status_code == 200, reply.text
    assert (provider.asked[0].body["messages"], provider.asked[0].body["tools"]) == (body["messages"], body["tools"])


async def test_all_answers_come_back_in_one_piece(http: httpx.AsyncClient, provider: RecordingProvider) -> None:
    provider.chat = _THREE
    reply = await http.post("/v1/chat/completions", json={"model": "gpt", **_ask(n=3)}, headers=_headers(_RICH))
    assert reply.status_code == 200, reply.text
    body = reply.json()
    said = [(each["index"], each["message"]["content"], each["finish_reason"]) for each in body["choices"]]
    assert said == [(0, "Tokyo.", "stop"), (1, "It is Tokyo", "length"), (2, "Japan's is Tokyo.", "stop")]
    assert body["usage"]["completion_tokens"] == body["hedgerow"]["completion_tokens"] == 60


async def test_all_answers_come_back_in_a_stream(http: httpx.AsyncClient, provider: RecordingProvider) -> None:
    provider.chat = _THREE
    body = {"model": "gpt", **_ask(n=3), "stream": True}
    reply = await http.post("/v1/chat/completions", json=body, headers=_headers(_RICH))
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    events = [{name: each for name, each in json.loads(line).items() if name != "hedgerow"} for line in lines]
    ends = [_THREE[2], _THREE[4], _THREE[5]]  # they wait for the account
    assert events == [each for each in _THREE[:-1] if each not in ends] + ends


async def test_the_tokens_of_all_answers_are_reserved(http: httpx.AsyncClient, provider: RecordingProvider) -> None:
    """More than there are of a minute are let through where the whole minute is there; that is not so after one."""
    usage = {"prompt_tokens": 9, "completion_tokens": _PER_MINUTE // 2 - 9, "total_tokens": _PER_MINUTE // 2}
    provider.chat = [*CHAT[:-1], {**_SAME, "choices": [], "usage": usage}]  # which come back in half a minute
    await http.post("/v1/chat/completions", json={"model": "gpt", **_ask()}, headers=_headers(_COUNTED))
    body = {"model": "gpt", **_ask(max_tokens=_PER_MINUTE // 3 + 100)}
    reply = await http.post("/v1/chat/completions", json={**body, "n": 3}, headers=_headers(_COUNTED))
    assert reply.status_code == 429, reply.text
    reply = await http.post("/v1/chat/completions", json=body, headers=_headers(_COUNTED))
    assert reply.status_code == 200, reply.text


async def test_beside_a_guard_of_answers_several_are_asked_one_by_one(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {"model": "gpt", **_ask(n=2), "hedgerow": {"guard": "answer_personal=mask"}}
    reply = await http.post("/v1/chat/completions", json=body, headers=_headers(_RICH))
    assert [choice["index"] for choice in reply.json()["choices"]] == [0, 1]
    assert ["n" in asked.body for asked in provider.asked] == [False, False]


async def test_a_part_is_not_lost_where_a_guard_masks_what_is_beside_it(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    content = [{"type": "text", "text": "Is it jane@example.org?"}, picture]
    body = {"model": "gpt", "messages": [{"role": "user", "content": content}], "hedgerow": {"guard": "personal=mask"}}
    reply = await http.post("/v1/chat/completions", json=body, headers=_headers(_RICH))
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["message"].startswith("messages[0].content[1]: none where the gateway changes")
    assert provider.asked == []


async def test_a_field_that_the_other_api_does_not_have_is_left_out_where_that_is_asked_for(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {"model": "claude", **_ask(seed=7, verbosity="low", metadata={"a": "b"})}
    reply = await http.post("/v1/chat/completions", json=body, headers=_headers(_RICH))
    assert reply.status_code in (400, 501), reply.text
    assert provider.asked == []
    asked = {**_headers(_RICH), "x-hedgerow-untranslated": "omit"}
    reply = await http.post("/v1/chat/completions", json=body, headers=asked)
    assert (reply.status_code, reply.headers["x-hedgerow-omitted"]) == (200, "seed, metadata, verbosity")
    changes = reply.json()["hedgerow"]["changes"]
    omitted = [(each["from"], each["by"]) for each in changes if each["what"] == "field_omitted"]
    assert omitted == [(name, "request") for name in ("seed", "metadata", "verbosity")]
    (sent,) = provider.asked
    assert not {"seed", "metadata", "verbosity"} & sent.body.keys()
    reply = await http.post("/v1/chat/completions", json={**body, "n": 2}, headers=asked)
    assert [choice["index"] for choice in reply.json()["choices"]] == [0, 1]
    assert not any("n" in each.body for each in provider.asked)
