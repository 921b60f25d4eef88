"""What a model reads beside the question: sentences about images, and context."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.vision.v1 import vision_pb2
from services.gateway.admission.effective import effective_settings
from services.gateway.admission.messages import NO_TEXT, flatten
from services.gateway.answer.inputs import mask_messages
from services.gateway.answer.prompt_builder import Asked, picture_lines
from services.gateway.answer.stages.cache.cache_key import cache_question
from services.gateway.config import GatewaySettings
from tests.unit.gateway.answer.scene import ACME, SETTINGS
from tests.unit.gateway.prompt.conversations import WORDY, chatter, said

CAT = [("Egyptian cat", 0.404), ("tabby", 0.22), ("tiger cat", 0.15)]


def labels_of(*pictures: list[tuple[str, float]]) -> list[vision_pb2.Labels]:
    labels = [[vision_pb2.Label(name=name, score=score) for name, score in picture] for picture in pictures]
    return [vision_pb2.Labels(labels=each) for each in labels]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (CAT, "The attached image most likely shows: Egyptian cat (40%), tabby (22%), tiger cat (15%)."),
        ([("espresso", 0.951), ("cup", 0.015)], "The attached image shows: espresso (95%)."),
        ([("cat", 0.91)], "The attached image shows: cat (91%)."),
        ([("cat", 0.3)], "The attached image most likely shows: cat (30%)."),
        (
            [("crane", 0.5), ("crane", 0.3), ("heron", 0.1)],
            "The attached image most likely shows: crane (50%), heron (10%).",
        ),
        (
            [("missile", 0.27), ("drilling platform", 0.1), ("mosque", 0.02)],
            "It is not clear what the attached image shows. The image classifier's best guesses: missile (27%), "
            "drilling platform (10%).",
        ),
        (
            [("web site", 0.001)],
            "It is not clear what the attached image shows. The image classifier's best guesses: web site (0%).",
        ),
        ([], "It is not known what the attached image shows."),
    ],
)
def test_a_sentence_says_how_sure_the_vision_model_is(labels: list[tuple[str, float]], sentence: str) -> None:
    assert picture_lines(labels_of(labels)) == [sentence]


def test_several_images_are_numbered() -> None:
    assert picture_lines(labels_of(CAT[:1], [], [("cup", 0.2)])) == [
        "Attached image 1 most likely shows: Egyptian cat (40%).",
        "It is not known what attached image 2 shows.",
        "It is not clear what attached image 3 shows. The image classifier's best guesses: cup (20%).",
    ]


def test_a_template_gives_the_notation_of_a_model_that_has_learned_another() -> None:
    assert picture_lines(labels_of(CAT[:2], []), "image: {labels}") == [
        "image: Egyptian cat (0.40), tabby (0.22)",
        "image: ",
    ]
    assert picture_lines(labels_of([("a {labels} %s {0}", 1)]), "{labels}") == ["a {labels} %s {0} (1.00)"]


def test_a_template_without_a_placeholder_for_labels_is_refused() -> None:
    models = {"small": ("127.0.0.1:1",)}
    assert GatewaySettings(llm_addresses=models, image_note="image: {labels}").image_note
    with pytest.raises(ValueError, match="image_note"):
        GatewaySettings(llm_addresses=models, image_note="image: {label}")


def test_a_picture_without_a_text_is_all_that_a_model_gets():
    asked = Asked((said("user", NO_TEXT),), pictures=(b"1",))
    assert list(asked.for_model()[0].parts) == [chat_pb2.Part(image=b"1")]


def part(**said: Any) -> chat_pb2.Part:
    return chat_pb2.Part(**said)


def asked_with(*turns: list[chat_pb2.Part]) -> Asked:
    """A question of these turns of the user, at a model that sees."""
    request = pb.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, parts=turn) for turn in turns])
    flatten(request)
    return Asked(tuple(request.messages), pictures=tuple(image.data for image in request.images))


def test_pictures_stay_in_their_messages_between_their_texts():
    turns = [
        [part(text="One: "), part(image=b"1"), part(image=b"2"), part(text=" Two: "), part(image=b"3")],
        [part(image=b"4"), part(text="Which is it?")],
        [part(image=b"5")],
    ]
    asked = asked_with(*turns)
    assert [list(message.parts) for message in asked.for_model()] == turns
    with_results = replace(asked, results=(("clock", "noon"),)).for_model()
    assert [list(message.parts) for message in with_results[:2]] == turns[:2]
    assert [each.WhichOneof("kind") for each in with_results[2].parts] == ["text", "image", "text"]


def test_equal_pictures_in_other_places_are_another_question():
    first, second = part(image=b"1"), part(image=b"2")
    told, wanted = part(text="Mine."), part(text="Whose?")
    each = [asked_with([first, told], [second, wanted]), asked_with([told], [first, second, wanted])]
    keys = {cache_question(pb.GenerateRequest(), asked, "acme").SerializeToString() for asked in each}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("messages", "asked", "shared"),
    [
        ([said("user", "Why?")], {"diet": pb.DIET_OFF, "truncation": pb.TRUNCATION_DISABLED}, True),
        ([said("system", WORDY), said("user", "Why?")], {"diet": pb.DIET_SYSTEM}, True),
        ([said("system", WORDY), said("user", "Why?")], {"diet": pb.DIET_OFF}, False),
        (chatter(4), {"truncation": pb.TRUNCATION_AUTO}, True),
        (chatter(4), {"truncation": pb.TRUNCATION_DISABLED}, False),
    ],
)
def test_an_answer_is_shared_by_requests_of_which_models_read_the_same(messages, asked, shared):
    keys = set()
    for policy in (pb.PromptPolicy(), pb.PromptPolicy(**asked)):
        request = pb.GenerateRequest(messages=messages, prompt=policy)
        settings = effective_settings(request, ACME, SETTINGS)
        keys.add(cache_question(request, Asked(tuple(messages)), "acme", settings=settings).SerializeToString())
    assert (len(keys) == 1) is shared


def test_pictures_of_a_masked_text_come_before_it():
    asked = asked_with([part(text="I am Ann: "), part(image=b"1")])
    masked = mask_messages(asked.messages, {"I am Ann: ": "I am [name 1]: "}, system=False)
    shown = replace(asked, messages=masked).for_model()[0]
    assert list(shown.parts) == [part(image=b"1"), part(text="I am [name 1]: ")]


def test_places_that_a_caller_makes_up_show_each_picture_once():
    message = said("user", "Hello.")
    for index in (0, 0, 7, -1):
        message.pictures.add(index=index, begin=-2, end=-9)
    shown = Asked((message,), pictures=(b"1", b"2")).for_model()[0]
    assert sorted(each.image for each in shown.parts if each.image) == [b"1", b"2"]


def test_context_joins_the_context_that_a_question_brings():
    own = "Context:\n- The lamp is red.\n\nQuestion: What color is the lamp?"
    asked = Asked((said("user", own),), ("image: red circle (0.97)",))
    expected = "Context:\n- image: red circle (0.97)\n- The lamp is red.\n\nQuestion: What color is the lamp?"
    assert asked.for_model()[-1].content == expected
