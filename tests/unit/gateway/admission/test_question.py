"""The model that a request names, and whether its answer may be shared."""

from __future__ import annotations

import threading

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.question import Question, read_model
from services.gateway.errors import ModelUnknown

FAST, QUALITY = pb.TIER_FAST, pb.TIER_QUALITY


@pytest.mark.parametrize(
    ("asked", "means"),
    [
        (pb.GenerateRequest(model="large", tier=FAST), pb.GenerateRequest(model="large", tier=FAST)),
        (pb.GenerateRequest(model="auto"), pb.GenerateRequest()),
        (pb.GenerateRequest(model="auto", tier=FAST), pb.GenerateRequest(tier=FAST)),
        (pb.GenerateRequest(model="quality", tier=FAST), pb.GenerateRequest(tier=QUALITY)),
    ],
)
def test_a_tiers_name_stands_for_the_tier(asked: pb.GenerateRequest, means: pb.GenerateRequest) -> None:
    read_model(asked, ["large", "small"])
    assert asked == means
    read_model(named := pb.GenerateRequest(model="fast"), ["fast"])
    assert named == pb.GenerateRequest(model="fast"), "a model of a tier's name is that model"


def test_an_unknown_model_is_not_found_and_the_error_lists_the_known_names() -> None:
    with pytest.raises(
        ModelUnknown, match=r"^model: one of large, small, auto, fast, balanced, quality, got huge$"
    ) as no:
        read_model(pb.GenerateRequest(model="huge"), ["small", "large"])
    assert no.value.metadata["value"] == "huge"


def test_a_question_does_not_wait_for_what_is_found_out_of_another_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def plain(original: chat_pb2.Original) -> bool:
        if original.body == b"large":
            begun.set()
            assert go_on.wait(10)
        return True

    monkeypatch.setattr("services.gateway.admission.question.is_plain_text", plain)
    large = Question(pb.GenerateRequest(original=chat_pb2.Original(body=b"large")))
    thread = threading.Thread(target=lambda: large.unshared)
    thread.start()
    assert begun.wait(10)
    assert Question(pb.GenerateRequest()).unshared is None
    assert thread.is_alive(), "the small request does not wait for the large one"
    go_on.set()
    thread.join()
    assert large.unshared is None
