"""Fields for a provider beside the gateway's own policies: what is refused, and what goes on."""

from __future__ import annotations

from typing import Any

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import provider_fields
from services.gateway.admission.question import Question
from services.gateway.errors import FieldDenied
from services.gateway.guard.checks import guard_checks
from services.gateway.labels import Bypassed
from services.gateway.settings.guard import GuardSettings
from services.runtime.errors import InvalidInput
from tests.unit.gateway.admission.bodies import HELLO, SEARCH, chat, messages, part


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (chat(n=2), Bypassed.PROVIDER),
        (chat(modalities=["text", "audio"]), Bypassed.PROVIDER),
        (chat(web_search_options={}), Bypassed.PROVIDER),
        (messages(tools=[SEARCH]), Bypassed.TOOLS),
        (messages(**part(type="image", source={"type": "file", "file_id": "f"})), Bypassed.PROVIDER),
        (chat(store=True), None),
    ],
)
def test_an_answer_that_is_not_one_text_of_the_model_is_not_shared(request_: pb.GenerateRequest, why: Bypassed) -> None:
    assert Question(request_).unshared == why


@pytest.mark.parametrize(
    ("beside", "why"),
    [
        ({"guard": "answer_personal=mask"}, "a guard of answers"),
        ({"cascade": "default"}, "a cascade"),
        ({"mesh_tools": ["search"]}, "mesh_tools"),
    ],
)
@pytest.mark.parametrize("asked", [{"n": 2}, {"modalities": ["text", "audio"]}])
def test_a_policy_that_looks_at_one_text_is_not_beside_several(
    asked: dict[str, Any], beside: dict[str, Any], why: str
) -> None:
    request = chat(**asked, hedgerow=beside)
    (place,) = asked
    with pytest.raises(InvalidInput, match=rf"^{place}: none together with {why}, which looks at one text, got "):
        provider_fields.check_beside(request, guard_checks(GuardSettings(), request), form=False)


def test_a_form_that_is_checked_is_not_beside_several_answers() -> None:
    with pytest.raises(InvalidInput, match=r"^n: none together with a check of the answer's form"):
        provider_fields.check_beside(chat(n=2), None, form=True)
    provider_fields.check_beside(chat(n=2), None, form=False)


def test_a_guard_of_requests_wants_parts_that_it_can_read() -> None:
    body = part(type="document", source={"type": "base64", "media_type": "application/pdf", "data": "eA=="})
    checks = guard_checks(GuardSettings(personal="refuse"), pb.GenerateRequest())
    with pytest.raises(InvalidInput, match=r"^messages\[0\]\.content\[1\]: text, which the guard of requests"):
        provider_fields.check_beside(messages(**body), checks, form=False)
    provider_fields.check_beside(
        chat(**part(type="image_url", image_url={"url": "https://a.example"})), checks, form=False
    )
    text = {"type": "text", "media_type": "text/plain", "data": "jane@example.org"}
    provider_fields.check_beside(
        messages(**part(type="document", source=text)), checks, form=False
    )  # the stage reads it


FILE = {"type": "file", "file": {"file_data": "eA=="}}
SOUND = {"type": "input_audio", "input_audio": {"data": "eA==", "format": "wav"}}


@pytest.mark.parametrize(("part_", "role"), [(SOUND, "assistant"), (SOUND, "system"), (FILE, "assistant")])
def test_a_message_that_is_left_hides_no_part_from_a_policy(part_: dict[str, Any], role: str) -> None:
    left = {"messages": [{"role": "user", "content": "Hi"}, {"role": role, "content": [part_]}]}
    checks = guard_checks(GuardSettings(personal="refuse"), pb.GenerateRequest())
    with pytest.raises(InvalidInput, match=r"^messages\[1\]: text, which the guard of requests"):
        provider_fields.check_beside(chat(**left), checks, form=False)
    within = {"messages": [*left["messages"], {"role": "user", "content": "?"}]}
    with pytest.raises(InvalidInput, match=r"^messages\[1\]\.content\[0\]: text, which the guard of requests"):
        provider_fields.check_beside(chat(**within), checks, form=False)


def test_a_file_in_a_message_that_is_left_needs_permission() -> None:
    original = chat(messages=[{"role": "assistant", "content": [FILE]}]).original
    with pytest.raises(FieldDenied, match=r"^messages\[0\]: no file for tenant acme"):
        provider_fields.check(original, [], "acme")
    provider_fields.check(original, ["files"], "acme")


def test_a_part_that_a_policy_would_lose_is_refused_by_its_path() -> None:
    own = chat(**part(type="file", file={"file_data": "eA=="})).original
    with pytest.raises(InvalidInput, match=r"^messages\[0\]\.content\[1\]: none where the gateway changes"):
        provider_fields.refuse_left(own, {"messages", "system"})
    provider_fields.refuse_left(own, {"tools"})
    with pytest.raises(InvalidInput, match=r"^tools\[0\]: none where the gateway changes"):
        provider_fields.refuse_left(messages(tools=[SEARCH]).original, {"messages", "tools"})


def test_a_turn_that_the_provider_has_paused_goes_on() -> None:
    paused = {
        "role": "assistant",
        "content": [{"type": "server_tool_use", "id": "1", "name": "web_search", "input": {}}],
    }
    request = messages(messages=[HELLO, paused], tools=[SEARCH])
    assert [message.content for message in request.messages] == ["Hi", "[server_tool_use]", "[pause_turn]"]
    assert not request.prefix
    begun = messages(messages=[HELLO, {"role": "assistant", "content": "Hello,"}])
    assert begun.prefix == "Hello,"


def test_a_choice_of_a_tool_that_was_left_is_left_too() -> None:
    request = messages(tools=[SEARCH], tool_choice={"type": "tool", "name": "web_search"})
    assert not request.HasField("tool_choice")
    assert "tool_choice" in request.original.untranslated
    both = messages(tools=[SEARCH, {"name": "f", "input_schema": {}}], tool_choice={"type": "tool", "name": "f"})
    assert both.tool_choice.name == "f"


def test_the_result_of_a_custom_call_has_a_call_before_it() -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    turns = [HELLO, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "1"}]
    request = chat(messages=turns, tools=[{"type": "custom", "custom": {"name": "sql"}}])
    assert request.messages[1].tool_calls[0].name == "sql"
    assert set(request.original.untranslated) == {"messages[1].tool_calls[0]", "tools[0]"}
