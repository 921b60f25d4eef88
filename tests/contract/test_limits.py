"""No service refuses, for its size or shape, a request that the gateway admits at default settings."""

from __future__ import annotations

import json

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.channel import CHANNEL_OPTIONS, MAX_MESSAGE_BYTES
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from hedgerow.vision.v1 import vision_pb2
from services.audio.config import AudioSettings
from services.cache import validation as cache_validation
from services.cache.config import CacheSettings
from services.gateway.admission import validation
from services.gateway.answer.prompt_builder import Asked
from services.gateway.answer.stages.cache.cache_key import cache_question
from services.gateway.cache_eligibility.choice import ANY, within
from services.gateway.config import GatewaySettings
from services.gateway.labels import Bypassed
from services.llm import validation as llm_validation
from services.llm.config import LlmSettings
from services.llm.translate import to_request
from services.runtime.errors import InvalidInput
from services.runtime.strict_json import compact
from services.vision.config import VisionSettings

GATEWAY = GatewaySettings(llm_addresses={"m": "x:1"}, vision_address="x:2", audio_address="x:3")
TRANSPARENT = GatewaySettings(llm_addresses={"m": "x:1"}, profile="transparent")
FORMAT = GATEWAY.response_format
SPOKEN_BYTES = 100_000  # an hour of quick speech
LONGEST_TENANT = "t" * 256


def test_a_provider_may_be_silent_for_as_long_as_an_answer_may_take() -> None:
    """The provider's model may think for the whole time before its first text."""
    for group in (LlmSettings(engine="openai").openai, LlmSettings(engine="openai").anthropic):
        assert group.read_timeout_ms >= TRANSPARENT.max_budget_ms


def messages(count: int, size: int) -> list[chat_pb2.Message]:
    """`count` of them, of `size` bytes together; the user's come first and last."""
    each, rest = divmod(size, count)
    return [
        chat_pb2.Message(role=(2, 3)[number % 2 and number < count - 1], content="x" * (each + (number < rest)))
        for number in range(count)
    ]


def schema(size: int) -> str:
    frame = json.dumps({"type": "object", "description": ""})
    return frame[:-2] + "x" * (size - len(frame)) + frame[-2:]


SCHEMA = chat_pb2.ResponseFormat(json_schema=schema(FORMAT.max_bytes))
REGEX = chat_pb2.ResponseFormat(regex="x" * FORMAT.max_pattern_bytes)
SAMPLING = chat_pb2.Sampling(
    temperature=2, top_p=1, max_tokens=2**31 - 1, seed=-(2**63), stop=["\U0010ffff" * 256 for _ in range(64)]
)


def largest(count: int, wanted: chat_pb2.ResponseFormat) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        messages=messages(count, GATEWAY.max_content_bytes), sampling=SAMPLING, response_format=wanted, model="m"
    )


LARGEST = [
    pytest.param(largest(count, wanted), id=f"{count}-{wanted.WhichOneof('constraint')}")
    for count in (1, GATEWAY.max_messages)
    for wanted in (SCHEMA, REGEX)
]


@pytest.mark.parametrize("request_", LARGEST)
def test_these_are_the_largest_requests(request_: pb.GenerateRequest):
    validation.check(request_, GATEWAY)
    more = pb.GenerateRequest()
    more.CopyFrom(request_)
    more.messages[0].content += "x"
    with pytest.raises(InvalidInput, match="messages: at most"):
        validation.check(more, GATEWAY)
    wanted = chat_pb2.ResponseFormat(json_schema=schema(FORMAT.max_bytes + 1))
    with pytest.raises(InvalidInput, match=r"response_format.json_schema: at most"):
        validation.check(pb.GenerateRequest(messages=messages(1, 5), response_format=wanted), GATEWAY)


@pytest.mark.parametrize("request_", LARGEST)
def test_the_cache_can_key_the_largest_question(request_: pb.GenerateRequest):
    heard = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="x" * SPOKEN_BYTES)
    context = tuple(f"image: {number}" for number in range(GATEWAY.max_images + 1))
    question = cache_question(request_, Asked((*request_.messages, heard), context), LONGEST_TENANT)
    cache_validation.check_question(question, CacheSettings())
    assert cache_pb2.LookupRequest(question=question).ByteSize() < CacheSettings().max_message_bytes


@pytest.mark.parametrize("request_", LARGEST)
def test_the_llm_takes_the_largest_request(request_: pb.GenerateRequest):
    asked = llm_pb2.GenerateRequest(
        messages=request_.messages, sampling=request_.sampling, response_format=request_.response_format
    )
    llm_validation.check(to_request(asked))
    assert asked.ByteSize() + SPOKEN_BYTES < LlmSettings().max_message_bytes


def test_vision_takes_the_largest_pictures():
    one = [pb.Image(data=b"x" * GATEWAY.max_images_bytes)]
    many = [pb.Image(data=b"x" * (GATEWAY.max_images_bytes // GATEWAY.max_images))] * GATEWAY.max_images
    vision = VisionSettings()
    assert GATEWAY.max_images <= vision.max_images
    for images in (one, many):
        validation.check(pb.GenerateRequest(messages=messages(1, 5), images=images), GATEWAY)
        shown = vision_pb2.ClassifyRequest(model="m" * 256, images=[vision_pb2.Image(data=i.data) for i in images])
        assert shown.ByteSize() < vision.max_message_bytes
        assert max(len(image.data) for image in images) <= vision.max_image_bytes
    with pytest.raises(InvalidInput, match="images: at most 4000000 bytes together, got 4000001 bytes"):
        validation.check(pb.GenerateRequest(messages=messages(1, 5), images=[*one, pb.Image(data=b"x")]), GATEWAY)


def test_audio_takes_the_largest_recording():
    assert GATEWAY.max_message_bytes <= AudioSettings(model="m").max_file_bytes


def test_the_llm_takes_the_longest_conversation_in_its_callers_own_words():
    """A conversation of 2- and 3-byte characters, which take three times as many bytes in ASCII JSON."""
    words = "é" * (TRANSPARENT.http.max_body_bytes // 2)
    asked = llm_pb2.GenerateRequest(
        messages=messages(2, TRANSPARENT.max_content_bytes),
        original=chat_pb2.Original(
            api=chat_pb2.API_CHAT_COMPLETIONS,
            body=words.encode(),
            untranslated={"new": compact(words).decode()},
        ),
    )
    assert asked.ByteSize() + TRANSPARENT.max_images_bytes < LlmSettings().max_message_bytes


@pytest.mark.parametrize(("size", "kept"), [(300_000, True), (3_000_000, False)])
def test_a_question_that_no_cache_takes_is_sent_to_none(size: int, kept: bool):
    choice = within(ANY, cache_pb2.Question(messages=messages(2, size)).ByteSize())
    assert (choice.allowed_hits == "any") is kept
    assert choice.reason is (None if kept else Bypassed.TOO_LARGE)


def test_messages_are_as_large_on_every_way():
    for settings in (GATEWAY, VisionSettings()):
        assert settings.max_message_bytes == MAX_MESSAGE_BYTES
    cache = CacheSettings()  # which is sent no pictures and no recordings
    assert cache.max_message_bytes > cache.max_question_bytes + cache.max_answer_bytes
    assert {limit for name, limit in CHANNEL_OPTIONS if name.endswith("_message_length")} == {MAX_MESSAGE_BYTES}
