"""The model that a request names."""

from __future__ import annotations

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.question import read_model
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


def test_another_name_is_not_found_and_those_that_there_are_are_told() -> None:
    with pytest.raises(
        ModelUnknown, match=r"^model: one of large, small, auto, fast, balanced, quality, got huge$"
    ) as no:
        read_model(pb.GenerateRequest(model="huge"), ["small", "large"])
    assert no.value.metadata["value"] == "huge"
