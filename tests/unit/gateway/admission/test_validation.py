from __future__ import annotations

from typing import Any, cast

import pytest

from hedgerow.chat.v1.chat_pb2 import (
    API_CHAT_COMPLETIONS,
    ROLE_ASSISTANT,
    ROLE_USER,
    Message,
    Original,
    ResponseFormat,
    Sampling,
    Tool,
)
from hedgerow.gateway.v1.gateway_pb2 import Audio, ConverseOptions, GenerateRequest, GuardPolicy, Image
from services.gateway.admission.identity import Tenant
from services.gateway.admission.validation import check, validate, validate_conversation
from services.gateway.config import GatewaySettings
from services.gateway.upstream.media import AudioBackend, Media
from services.runtime.errors import InvalidInput

ACME = Tenant("acme")
SETTINGS = GatewaySettings(llm_addresses={"small": "127.0.0.1:1", "large": "127.0.0.1:2"}, max_content_bytes=1_000)


def request(content: str = "What is latency?", **fields: object) -> GenerateRequest:
    return GenerateRequest(messages=[Message(role=ROLE_USER, content=content)], **fields)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (GenerateRequest(), "messages: 1 to 256 messages, got 0"),
        (GenerateRequest(messages=request().messages[:] * 257), "messages: 1 to 256 messages, got 257"),
        (request("  "), r"messages\[0\]\.content: text that is not blank, got '  '"),
        (request("a" * 1_001), "messages: at most 1000 bytes of content, got 1001 bytes"),
        (GenerateRequest(messages=[Message(content="hi")]), r"messages\[0\]\.role: a Role, 1 to 4, got 0"),
        (request(budget_ms=0), "budget_ms: at least 1, got 0"),
        (request(sampling=Sampling(temperature=2.5)), "sampling.temperature: 0 to 2, got 2.5"),
        (request(sampling=Sampling(temperature=float("nan"))), "sampling.temperature: 0 to 2, got nan"),
        (request(sampling=Sampling(top_p=0)), "sampling.top_p: above 0, got 0"),
        (request(sampling=Sampling(top_k=-2)), "sampling.top_k: -1 to 1000000, got -2"),
        (request(sampling=Sampling(min_p=1.5)), "sampling.min_p: 0 to 1, got 1.5"),
        (request(sampling=Sampling(repetition_penalty=0)), "sampling.repetition_penalty: above 0, got 0"),
        (request(sampling=Sampling(min_tokens=9, max_tokens=8)), "sampling.min_tokens: 0 to max_tokens, got 9"),
        (request(sampling=Sampling(min_tokens=-1)), "sampling.min_tokens: 0 to max_tokens, got -1"),
        (request(sampling=Sampling(stop_token_ids=[1] * 65)), "sampling.stop_token_ids: at most 64, got 65"),
        (request(sampling=Sampling(stop_token_ids=[-1])), r"sampling.stop_token_ids\[0\]: 0 or more, got -1"),
        (request(sampling=Sampling(max_tokens=0)), "sampling.max_tokens: at least 1, got 0"),
        (request(sampling=Sampling(stop=["x"] * 65)), "sampling.stop: at most 64 strings, got 65"),
        (
            request(sampling=Sampling(stop=["x"]), response_format=ResponseFormat(grammar="start: A")),
            "sampling.stop: none together with a grammar, which says where an answer ends, got 1",
        ),
        (request(sampling=Sampling(stop=[""])), r"sampling.stop\[0\]: 1 to 256 characters, got 0"),
        (request(guard=GuardPolicy(personal=3)), "guard.personal: a GuardAction, 0 to 2, got 3"),
        (
            request(guard=GuardPolicy(injection=1)),
            "guard.injection: GUARD_ACTION_REFUSE: an injection has no masked form, got GUARD_ACTION_MASK",
        ),
        (request(images=[Image(data=b"x")]), "images: none: no model takes one"),
        (request(audio=Audio(data=b"xy")), "audio: none while no audio service is configured, got 2 bytes"),
    ],
)
def test_bad_input_is_refused_with_field_limit_and_value(bad: GenerateRequest, message: str):
    with pytest.raises(InvalidInput, match=message):
        check(bad, SETTINGS)


SENSING = GatewaySettings(
    llm_addresses={"small": "127.0.0.1:1"}, vision_address="127.0.0.1:3", audio_address="127.0.0.1:4", max_images=2
)


@pytest.mark.parametrize(
    ("good", "settings"),
    [
        (request(model="small", budget_ms=1, sampling=Sampling(temperature=0, top_p=1, max_tokens=1)), SETTINGS),
        (request(sampling=Sampling(min_tokens=0, max_tokens=1)), SETTINGS),
        (request(sampling=Sampling(min_tokens=1, max_tokens=1)), SETTINGS),
        (request(images=[Image(data=b"x")] * 2, audio=Audio(data=b"y")), SENSING),
        (GenerateRequest(audio=Audio(data=b"y")), SENSING),
        (GenerateRequest(messages=[Message(role=ROLE_ASSISTANT, content="Go on.")], audio=Audio(data=b"y")), SENSING),
    ],
    ids=["plain", "any length", "all its tokens", "pictures and a recording", "a recording", "a spoken answer"],
)
def test_a_question_is_admitted(good: GenerateRequest, settings: GatewaySettings):
    check(good, settings)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request(images=[Image(data=b"x")] * 3), "images: at most 2 images, got 3"),
        (
            request(images=[Image(data=bytes(SENSING.max_images_bytes)), Image(data=b"x")]),
            rf"^images: at most {SENSING.max_images_bytes} bytes together, got {SENSING.max_images_bytes + 1} bytes",
        ),
        (request(images=[Image(data=b"x"), Image()]), r"images\[1\].data: an encoded picture, got 0 bytes"),
        (request(audio=Audio()), "audio.data: an encoded recording, got 0 bytes"),
        (GenerateRequest(images=[Image(data=b"x")]), "messages: 1 to 256 messages, got 0"),
    ],
)
def test_bad_pictures_and_recordings_are_refused(bad: GenerateRequest, message: str):
    with pytest.raises(InvalidInput, match=message):
        check(bad, SENSING)


HEARING = Media(audio=AudioBackend(cast(Any, None), cast(Any, None)))


@pytest.mark.parametrize(
    ("options", "media", "message"),
    [
        (ConverseOptions(), Media(), "options: no conversations while no audio service is configured, got one"),
        (
            ConverseOptions(request=GenerateRequest(audio=Audio(data=b"y"))),
            HEARING,
            "options.request.audio: nothing: what is spoken is the audio, got a recording",
        ),
        (
            ConverseOptions(request=GenerateRequest(tools=[Tool(name="clock")])),
            HEARING,
            "options.request.tools: none: nothing returns their results, got 1",
        ),
        (ConverseOptions(request=GenerateRequest(budget_ms=-1)), HEARING, "budget_ms: at least 1, got -1"),
        (
            ConverseOptions(request=GenerateRequest(original=Original(api=API_CHAT_COMPLETIONS, body=b"{}"))),
            HEARING,
            "options.request.original: none by gRPC, got one",
        ),
    ],
)
def test_a_conversation_that_cannot_be_held_is_refused(options: ConverseOptions, media: Media, message: str):
    assert validate_conversation(ConverseOptions(), SENSING, HEARING) is HEARING.audio, "it needs no question yet"
    with pytest.raises(InvalidInput, match=message):
        validate_conversation(options, SENSING, media)


def test_pictures_go_to_a_model_with_vision_where_there_is_no_vision_service():
    blind, seeing = Media(), Media(sees=lambda name: name == "small")
    asked = request(model="small", images=[Image(data=b"x")])
    assert validate(asked, ACME, SETTINGS, seeing).pixels
    assert not validate(request(model="small"), ACME, SETTINGS, seeing).pixels
    for media, name in ((blind, "small"), (seeing, "large"), (seeing, "")):
        with pytest.raises(
            InvalidInput,
            match=f"images: none: {name or 'no model'} takes .*, and no vision service is configured, got 1",
        ):
            validate(request(model=name, images=[Image(data=b"x")]), ACME, SETTINGS, media)
