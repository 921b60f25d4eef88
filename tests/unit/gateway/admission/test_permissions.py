"""Fields by which a request has a provider do more than answer: the permission that each needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import provider_fields
from services.gateway.admission.control import _tokens
from services.gateway.admission.question import Question
from services.gateway.errors import FieldDenied
from services.gateway.http.dialects.original import original
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.fields import Fields
from services.gateway.settings import permissions
from services.gateway.settings.permissions import PERMISSIONS, choices, needed
from services.runtime.errors import InvalidInput
from tests.unit.gateway.admission.bodies import HELLO, SEARCH, chat, messages, part


def file(**given: Any) -> tuple[dict[str, Any], str, str]:
    """A part that a provider fetches, or that was uploaded to it."""
    return part(**given), "files", "messages[0].content[1]"


CHATS: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "two answers": ({"n": 2}, "n", "n"),
    "a search": ({"web_search_options": {}}, "server_tools", "web_search_options"),
    "sound": ({"modalities": ["text", "audio"]}, "modalities", "modalities"),
    "a voice": ({"audio": {"voice": "ash", "format": "pcm16"}}, "modalities", "audio"),
    "a prediction": ({"prediction": {"type": "content", "content": "x"}}, "prediction", "prediction"),
    "a picture by URL": file(type="image_url", image_url={"detail": "data:", "url": "HTTPS://a.example/b.png"}),
    "an uploaded file": file(type="file", file={"file_id": "file-1"}),
    "a video by URL": file(type="video_url", video_url={"url": "http://a.example"}),
    "a day's prompt cache": ({"prompt_cache_retention": "24h"}, "prompt_cache_retention", "prompt_cache_retention"),
    "half a day's": ({"prompt_cache_options": {"ttl": "12h"}}, "prompt_cache_retention", "prompt_cache_options"),
    "a faster tier": ({"service_tier": "fast"}, "service_tier", "service_tier"),
    "other models": ({"models": ["a", "b"]}, "fallbacks", "models"),
    "OpenRouter's way on to them": ({"route": "fallback"}, "fallbacks", "route"),
    "OpenRouter's hosts": ({"provider": {"order": ["dear"]}}, "fallbacks", "provider"),
    "SGLang's adapters": ({"lora_path": "another's"}, "fallbacks", "lora_path"),
    "OpenRouter's plugins": ({"plugins": [{"id": "web"}]}, "server_tools", "plugins"),
    "xAI's searches": ({"search_parameters": {"mode": "on"}}, "server_tools", "search_parameters"),
    "Qwen's searches": ({"enable_search": True}, "server_tools", "enable_search"),
    "Azure's searches": ({"data_sources": [{"type": "azure_search"}]}, "server_tools", "data_sources"),
    "before others": ({"priority": -1}, "priority", "priority"),
    "unseen fields": ({"extra_body": {"n": 9}}, "extra_body", "extra_body"),
    "kept": ({"store": True}, "store", "store"),
    "kept, in capital letters": ({"STORE": True}, "store", "STORE"),
    "in the background": ({"background": True}, "background", "background"),
}


MESSAGES: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "a search": ({"tools": [{"name": "f", "input_schema": {}}, SEARCH]}, "server_tools", "tools[1]"),
    "a fetch": ({"tools": [{"type": "web_fetch_20260318", "name": "web_fetch"}]}, "server_tools", "tools[0]"),
    "code": ({"tools": [{"type": "code_execution_20260521", "name": "c"}]}, "server_tools", "tools[0]"),
    "a tool of tomorrow": ({"tools": [{"type": "oracle_20300101", "name": "o"}]}, "server_tools", "tools[0]"),
    "MCP": ({"mcp_servers": [{"type": "url", "url": "https://a.example", "name": "a"}]}, "server_tools", "mcp_servers"),
    "a container": ({"container": "container_1"}, "server_tools", "container"),
    "a picture by URL": file(type="image", source={"type": "url", "url": "https://a.example"}),
    "an uploaded document": file(type="document", source={"type": "file", "file_id": "file_1"}),
    "a picture within a document": file(
        type="document",
        source={"type": "content", "content": [{"type": "image", "source": {"type": "url", "url": "https://a"}}]},
    ),
    "a file for a container": file(type="container_upload", file_id="file_1"),
    "fast mode": ({"speed": "fast"}, "speed", "speed"),
    "a region": ({"inference_geo": "us"}, "inference_geo", "inference_geo"),
    "models that stand in": ({"fallbacks": [{"model": "b"}]}, "fallbacks", "fallbacks"),
}


@pytest.mark.parametrize(
    ("write", "given"),
    [
        pytest.param(write, given, id=f"{write.__name__}: {name}")
        for write, table in ((chat, CHATS), (messages, MESSAGES))
        for name, given in table.items()
    ],
)
def test_a_refusal_names_the_field_and_the_setting(write: Any, given: tuple[dict[str, Any], str, str]) -> None:
    body, permission, place = given
    request = write(**body)
    with pytest.raises(FieldDenied) as denied:
        provider_fields.check(request.original, [each for each in PERMISSIONS if each != permission], "acme")
    assert str(denied.value).startswith(f"{place}: ")
    assert f"`provider: [{permission}]` in the tenant's settings permits it" in str(denied.value)
    provider_fields.check(request.original, [permission], "acme")


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("api_base", "http://169.254.169.254"),
        ("base_url", "http://a.example"),
        ("api_key", "another's key"),
        ("extra_headers", {"authorization": "another's key"}),
        ("aws_secret_access_key", "another's key"),
        ("vertex_credentials", {}),
        ("litellm_credential_name", "another"),
        ("kv_transfer_params", {"remote_host": "a.example"}),
        ("bootstrap_host", "a.example"),
        ("custom_logit_processor", "80049"),
        ("cache_salt", "another tenant's"),
        ("extra_key", "another tenant's"),
        ("cache", {"namespace": "another tenant's"}),
    ],
)
@pytest.mark.parametrize("write", [chat, messages])
def test_no_setting_permits_another_account_or_another_tenants_cache(write: Any, field: str, given: object) -> None:
    with pytest.raises(FieldDenied, match=rf"^{field}: none.*; no setting permits it$") as denied:
        provider_fields.check(write(**{field: given}).original, PERMISSIONS, "acme")
    assert "another's key" not in str(denied.value)


@pytest.mark.parametrize(
    "request_",
    [
        chat(priority=0, cache={"no-cache": True}),
        chat(priority=7),
        chat(service_tier="auto", background=False),
        chat(n=1, modalities=["text"], store=False, service_tier="default", prompt_cache_options={"ttl": "30m"}),
        chat(tools=[{"type": "custom", "custom": {"name": "sql"}}], tool_choice="required"),
        chat(**part(type="image_url", image_url={"url": "data:image/png;base64,eA=="})),
        messages(tools=[{"type": "bash_20250124", "name": "bash"}, {"type": "memory_20250818", "name": "memory"}]),
        messages(**part(type="document", source={"type": "base64", "media_type": "application/pdf", "data": "eA=="})),
        messages(**part(type="document", source={"type": "text", "media_type": "text/plain", "data": "see the url"})),
        messages(speed="standard", inference_geo="global", service_tier="standard_only"),
    ],
)
def test_fields_without_extra_cost_need_no_permission(request_: pb.GenerateRequest) -> None:
    provider_fields.check(request_.original, (), "acme")


@pytest.mark.parametrize(
    ("kinds", "permission"),
    [
        ("mcp web_search web_search_preview code_interpreter image_generation file_search shell", "server_tools"),
        ("function custom local_shell apply_patch computer_use_preview namespace", ""),
    ],
)
def test_tools_of_responses_need_permission_where_they_run_at_the_provider(kinds: str, permission: str) -> None:
    for kind in kinds.split():
        beyond = needed("tools[3]", json.dumps({"type": kind}))
        assert (beyond.permission if beyond else "") == permission, kind


def test_every_permission_has_a_field_that_needs_it() -> None:
    permissions = {permission for _, permission, _ in (*CHATS.values(), *MESSAGES.values())}
    assert permissions == set(PERMISSIONS)


def test_several_answers_reserve_as_many_limits() -> None:
    request = chat(n=3, max_tokens=100)
    assert choices(request.original) == 3
    assert choices(messages(n="all").original) == 1  # no field of that API
    assert _tokens(Question(request, prompt_tokens=7)) == 307
    assert _tokens(Question(chat(n=2), prompt_tokens=7)) == 7 + 2 * 256
    assert _tokens(Question(chat(max_tokens=100), prompt_tokens=7)) == 107


def test_the_json_of_a_field_is_read_once_for_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()

    def loads(given: str) -> Any:
        read.append(given)
        return json.JSONDecoder().decode(given)

    monkeypatch.setattr("services.gateway.settings.permissions.json.loads", loads)
    assert needed("input[7]", '{"type":"function_call_output","call_id":"c","output":"x"}') is None
    assert len(read) == 1


def test_texts_behind_a_long_name_do_not_repeat_it_and_are_found() -> None:
    given = {"k" * 10_000: {f"m{number}": "x" for number in range(100)} | {"a_url": {"url": "http://a.example"}}}
    assert max(len(path) for path, _ in permissions.texts(given)) == 100
    assert needed("messages[0].content[0]", json.dumps(given)) is not None


def test_elements_of_an_array_share_the_rules_of_their_path() -> None:
    permissions._known_rules.cache_clear()
    assert all(needed(f"input[{index}]", '{"type":"x"}') is None for index in range(1_000))
    assert permissions._known_rules.cache_info().misses == 1


def test_the_rules_of_a_long_path_are_not_cached() -> None:
    permissions._known_rules.cache_clear()
    assert needed(f"{'x' * 100}[0]", '{"file_id":"f"}') is not None
    assert permissions._known_rules.cache_info().currsize == 0


@pytest.mark.parametrize("item", [{"type": "x"}, {"type": "reasoning", "summary": []}], ids=["unknown", "thoughts"])
def test_more_items_that_only_a_provider_reads_than_can_be_checked_are_refused(item: dict[str, Any]) -> None:
    def left(items: int) -> chat_pb2.Original:
        data = {"model": "m", "input": [*[item] * items, HELLO]}
        fields = Fields(data)
        read_response(fields, {}, {"m"})
        return original(chat_pb2.API_RESPONSES, json.dumps(data).encode(), fields, {})

    assert len(left(provider_fields.MOST_OBJECTS).untranslated) == provider_fields.MOST_OBJECTS
    with pytest.raises(InvalidInput, match="at most 10000 items that only a provider reads"):
        left(provider_fields.MOST_OBJECTS + 1)
