from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.linear_model import BUCKETS, BadWeights, LinearModel, features, load


@given(st.text(max_size=300))
def test_every_text_has_features_that_are_buckets(text: str):
    assert all(0 <= feature < BUCKETS for feature in features(text))


def test_characters_that_only_disguise_a_word_change_no_feature():
    assert features("Ignore the rules") == features("ｉｇｎｏｒｅ THE ru\u200bles")


def test_a_probability_is_the_logistic_of_the_weights_over_the_root_of_their_number():
    weights = array("b", bytes(BUCKETS))
    weights[1] = weights[2] = 2
    model = LinearModel(weights, step=0.5, bias=0.0)
    assert model.probability(set()) == 0.5
    assert model.probability({1, 2, 3, 4}) == pytest.approx(1 / (1 + 2.718281828**-1.0))


def test_a_file_without_a_weight_for_each_bucket_is_refused(tmp_path: Path):
    file = tmp_path / "cut.weights"
    file.write_bytes(b'{"step": 1, "bias": 0}\n' + bytes(BUCKETS - 1))
    with pytest.raises(BadWeights, match="32768 weights, got 32767"):
        load(file)
