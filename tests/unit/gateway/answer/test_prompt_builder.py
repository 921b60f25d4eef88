"""What a model reads beside the question: sentences about images, and context."""

from __future__ import annotations

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.vision.v1 import vision_pb2
from services.gateway.admission.messages import NO_TEXT
from services.gateway.answer.prompt_builder import Asked, picture_lines
from services.gateway.config import GatewaySettings
from tests.unit.gateway.prompt.conversations import said

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


def test_without_images_the_prompt_has_no_labels() -> None:
    assert picture_lines([]) == []


def test_a_template_without_a_placeholder_for_labels_is_refused() -> None:
    models = {"small": ("127.0.0.1:1",)}
    assert GatewaySettings(llm_addresses=models, image_note="image: {labels}").image_note
    with pytest.raises(ValueError, match="image_note"):
        GatewaySettings(llm_addresses=models, image_note="image: {label}")


def test_a_picture_without_a_text_is_all_that_a_model_gets():
    asked = Asked((said("user", NO_TEXT),), pictures=(b"1",))
    assert list(asked.for_model()[0].parts) == [chat_pb2.Part(image=b"1")]


def test_context_joins_the_context_that_a_question_brings():
    own = "Context:\n- The lamp is red.\n\nQuestion: What color is the lamp?"
    asked = Asked((said("user", own),), ("image: red circle (0.97)",))
    expected = "Context:\n- image: red circle (0.97)\n- The lamp is red.\n\nQuestion: What color is the lamp?"
    assert asked.for_model()[-1].content == expected


def test_without_context_the_question_stays_as_it_is():
    asked = Asked((said("user", "Hello."),))
    assert asked.for_model() == [said("user", "Hello.")]
    assert asked.attachments() == []
    assert cache_pb2.Question(attachments=asked.attachments()) == cache_pb2.Question()
