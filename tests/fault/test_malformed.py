"""Malformed messages are what they say, and the same each time."""

from __future__ import annotations

import random

from hedgerow.cache.v1 import cache_pb2
from tests.fault.malformed import malformed, parses

_STORE = cache_pb2.StoreRequest.DESCRIPTOR


def test_a_seed_makes_the_same_messages():
    first, second = ([malformed(_STORE, random.Random(seed)) for seed in range(50)] for _ in range(2))
    assert first == second


def test_most_malformed_bytes_are_no_messages_and_some_are():
    rng = random.Random(1)
    good = [parses(_STORE, malformed(_STORE, rng)) for _ in range(500)]
    assert 25 < sum(good) < 250


def test_malformed_bytes_are_made_from_an_example():
    example = cache_pb2.StoreRequest(answer=cache_pb2.Answer(text="recognizable"))
    rng = random.Random(1)
    made = [malformed(_STORE, rng, example) for _ in range(200)]
    assert any(b"recogn" in raw for raw in made)
    assert not all(b"recogn" in raw for raw in made)
