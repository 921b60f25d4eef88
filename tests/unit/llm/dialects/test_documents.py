"""Documents of one API at models of another, in their places between the texts."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.messages import check, flatten
from services.gateway.admission.question import Question
from services.gateway.answer.prompt_builder import Asked
from services.gateway.answer.stages.cache.cache_key import cache_question
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.original import original
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.fields import Fields
from services.llm.engine import Request
from services.llm.providers.engine import ProviderEngine
from services.llm.servicer import _read
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput
from tests.recorded_response import RESPONSE
from tests.unit.llm.dialects.responses import makers, sent
from tests.unit.llm.providers.messages_api import ended, engine, maker_s, provider, text
from tests.unit.llm.providers.simulated_provider import SimulatedProvider

PDF = base64.b64encode(b"%PDF-1.7 and more").decode()
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(80)).decode()
DATA = f"data:application/pdf;base64,{PDF}"
URL = "https://a.test/b.pdf"
READ: dict[str, Any] = {
    "chat": (read_chat, chat_pb2.API_CHAT_COMPLETIONS),
    "responses": (read_response, chat_pb2.API_RESPONSES),
    "messages": (read_messages, chat_pb2.API_MESSAGES),
}


def file(**said: str) -> dict[str, Any]:
    return {"type": "file", "file": said}


def input_file(**said: str) -> dict[str, Any]:
    return {"type": "input_file", **said}


def document(type: str = "base64", **said: Any) -> dict[str, Any]:
    sources = {
        "base64": {"media_type": "application/pdf", "data": PDF},
        "text": {"media_type": "text/plain", "data": "All is well."},
        "url": {"url": URL},
        "file": {"file_id": "file_1"},
        "content": {"content": "All is well."},
    }
    return {"type": "document", "source": {"type": type, **sources[type]}, **said}


def read(api: str, *parts: dict[str, Any]) -> pb.GenerateRequest:
    """The request that the gateway reads of a question with these parts."""
    return read_turns(api, [{"role": "user", "content": list(parts)}])


def read_turns(api: str, turns: list[dict[str, Any]]) -> pb.GenerateRequest:
    """The request that the gateway reads of a conversation."""
    body = {"model": "m", "max_tokens": 9, ("input" if api == "responses" else "messages"): turns}
    given, (reader, number) = Fields(body), READ[api]
    request: pb.GenerateRequest = reader(given, {}, {"m"}).request
    request.original.CopyFrom(original(number, json.dumps(body).encode(), given, {}))
    check(request, 10)
    flatten(request)
    return request


def for_engine(request: pb.GenerateRequest, engine: Any) -> Request:
    asked = Asked(tuple(request.messages), pictures=tuple(image.data for image in request.images))
    wanted = llm_pb2.GenerateRequest(messages=asked.for_model(), sampling=request.sampling, original=request.original)
    return _read(wanted, "acme", engine.describe())[0]


async def posted(target: str, request: pb.GenerateRequest, *features: str) -> list[Any]:
    """The conversation that a provider of this API gets, of the shape that its own client has."""
    model: ProviderEngine
    own: dict[str, Any] = {"features": ["tools", *(features or ("images",))]}
    if target == "messages":
        simulated = provider(*text("Hi."), *ended())
        model = engine(simulated, **own)
    else:
        simulated = sent(RESPONSE) if target == "responses" else SimulatedProvider()
        model = simulated.engine(own={"apis": ["responses" if target == "responses" else "chat_completions"], **own})
    async for _ in model.generate(for_engine(request, model), Deadline.never()):
        pass
    body = simulated.body
    if target == "messages":
        maker_s("MessageCreateParams").validate_python(body)
    elif target == "responses":
        makers("ResponseInputParam").validate_python(body["input"])
    conversation: list[Any] = body["input" if target == "responses" else "messages"]
    return conversation


async def content(target: str, request: pb.GenerateRequest) -> list[dict[str, Any]]:
    """The parts of the question that a provider of this API gets."""
    (turn,) = await posted(target, request)
    said: list[dict[str, Any]] = turn["content"]
    return said


@pytest.mark.parametrize(
    ("api", "part", "target", "expected"),
    [
        ("messages", document(title="Q3"), "chat", file(filename="Q3.pdf", file_data=DATA)),
        ("messages", document(citations={"enabled": False}), "chat", file(filename="document.pdf", file_data=DATA)),
        ("messages", document("text"), "chat", {"type": "text", "text": "All is well."}),
        ("messages", document("text", title="Q3"), "responses", {"type": "input_text", "text": "Q3\n\nAll is well."}),
        ("messages", document(title="Q3.PDF"), "responses", input_file(filename="Q3.PDF", file_data=DATA)),
        ("messages", document("url"), "responses", input_file(file_url=URL)),
        (
            "chat",
            {**file(filename="a.csv", file_data="data:text/csv;base64,YSxi"), "prompt_cache_breakpoint": {}},
            "responses",
            input_file(filename="a.csv", file_data="data:text/csv;base64,YSxi"),
        ),
        ("chat", file(file_id="file-1"), "responses", input_file(file_id="file-1")),
        ("chat", file(filename="a.pdf", file_data=DATA), "messages", document(title="a.pdf")),
        ("responses", input_file(filename="a.pdf", file_data=DATA), "chat", file(filename="a.pdf", file_data=DATA)),
        ("responses", input_file(file_id="file-1"), "chat", file(file_id="file-1")),
        ("responses", input_file(filename="a.pdf", file_data=DATA, detail="auto"), "messages", document(title="a.pdf")),
        ("responses", input_file(file_url=URL), "messages", document("url")),
        (
            "responses",
            input_file(filename="a", file_data="data:text/plain;base64,QWxsIGlzIHdlbGwu"),
            "messages",
            document("text", title="a"),
        ),
    ],
)
async def test_a_document_keeps_its_place_in_the_words_of_the_models_api(
    api: str, part: dict[str, Any], target: str, expected: dict[str, Any]
) -> None:
    kind = "input_text" if api == "responses" else "text"
    before, after = {"type": kind, "text": "One: "}, {"type": kind, "text": "What is it?"}
    said = await content(target, read(api, before, part, after, part))
    kind = "input_text" if target == "responses" else "text"
    assert said == [{"type": kind, "text": "One: "}, expected, {"type": kind, "text": "What is it?"}, expected]


@pytest.mark.parametrize(
    ("api", "part", "target"),
    [
        ("messages", document("url"), "chat"),
        ("messages", document("file"), "chat"),
        ("messages", document("content"), "responses"),
        ("messages", document(citations={"enabled": True}), "chat"),
        ("messages", document(context="From the archive."), "responses"),
        ("messages", {"type": "document", "source": "all of it"}, "chat"),
        ("responses", input_file(file_url=URL), "chat"),
        ("responses", input_file(file_id="file-1"), "messages"),
        ("responses", input_file(file_data=DATA, detail="low"), "chat"),
        ("responses", input_file(file_data="data:text/csv;base64,YSxi"), "messages"),
        ("responses", input_file(file_data="data:text/plain;base64,/w=="), "messages"),
        ("responses", input_file(filename="a.pdf"), "chat"),
        ("chat", file(file_data=DATA, file_id="file-1"), "responses"),
    ],
)
async def test_what_the_other_api_lacks_is_refused_by_its_place(api: str, part: dict[str, Any], target: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await content(target, read(api, part))
    assert refused.value.metadata["field"] == ("input" if api == "responses" else "messages") + "[0].content[0]"


async def test_a_document_beside_a_picture_is_not_lost() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    one, two = {"type": "text", "text": "One: "}, {"type": "text", "text": "Two: "}
    said = await content("chat", read("messages", one, document(), picture, picture, two, picture, document(), one))
    shown = [each["text"] if each["type"] == "text" else each["type"] for each in said]
    assert shown == ["One: \n", "file", "image_url", "image_url", "Two: ", "image_url", "file", "\nOne: "]


@pytest.mark.parametrize(
    ("api", "part"),
    [
        ("messages", document(citations={"enabled": True})),
        ("chat", file(file_id="file-1")),
        ("responses", input_file(file_url=URL, detail="low")),
    ],
)
async def test_a_conversation_that_the_gateway_has_changed_has_the_documents_of_its_own_api(
    api: str, part: dict[str, Any]
) -> None:
    request = read(api, {"type": "input_text" if api == "responses" else "text", "text": "One: "}, part)
    body = json.loads(request.original.body)
    request.original.body = json.dumps(
        {name: given for name, given in body.items() if name not in ("messages", "input")}
    ).encode()
    assert (await content(api, request))[1] == part


async def test_documents_of_other_messages_than_the_users_are_refused() -> None:
    body = {"role": "assistant", "content": [input_file(file_data=DATA)]}, {"role": "user", "content": "Why?"}
    given = Fields({"model": "m", "input": list(body)})
    request = read_response(given, {}, {"m"}).request
    request.original.CopyFrom(original(chat_pb2.API_RESPONSES, b'{"input": []}', given, {}))
    with pytest.raises(InvalidInput, match=r"input\[0\].content\[0\]"):
        for_engine(request, SimulatedProvider().engine())


@pytest.mark.parametrize("api", READ)
def test_a_question_about_another_document_has_another_key(api: str) -> None:
    """Requests with a file that needs a permission have no key at all."""
    other = base64.b64encode(b"%PDF-1.7 and less").decode()
    kinds = {"chat": file, "responses": input_file}
    parts = [document(), {**document(), "source": {**document()["source"], "data": other}}]
    if api in kinds:
        parts = [kinds[api](file_data=f"data:application/pdf;base64,{data}") for data in (PDF, other)]
    requests = [read(api, part) for part in (parts[0], *parts)]
    keys = [cache_question(each, Asked(tuple(each.messages)), "acme").SerializeToString() for each in requests]
    assert (keys[0] == keys[1], keys[1] == keys[2]) == (True, False)
    assert [Question(each).shareable for each in requests] == [api == "messages"] * 3


def test_a_place_that_no_part_has_is_no_document() -> None:
    """A caller of the llm service, such as one that counts tokens, has only the text."""
    message = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="[file]")
    message.documents.add(place="messages[0].content[0]", begin=0, end=6)
    wanted, _ = _read(llm_pb2.GenerateRequest(messages=[message]), "acme", SimulatedProvider().engine().describe())
    assert (wanted.messages[0].content, wanted.messages[0].parts) == ("[file]", ())
