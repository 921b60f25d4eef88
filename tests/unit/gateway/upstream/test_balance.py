import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from services.gateway.upstream import balance
from services.gateway.upstream.balance import BLOCK_BYTES, Locality, Prefixes, blocks, order


@dataclass
class Replica:
    address: str
    locality: Locality = field(default_factory=Locality)
    in_flight: int = 0
    first_s: float = 0.0
    prefixes: Prefixes = field(default_factory=Prefixes)


class Long(str):
    """A text that is too long to be copied as a whole."""

    def encode(self, *_: object) -> bytes:
        raise AssertionError


def prompt(number: int, question: str = "?"):
    return blocks([f"System prompt number {number}. " * 40, question], "")


class Calls:
    """Calls made one after the other; each stays in flight until it is over."""

    def __init__(self, *replicas: Replica):
        self.replicas, self.rng = replicas, random.Random(1)

    def made(self, what=()) -> str:
        first = next(order(self.replicas, what, self.rng))
        balance.taken(first, what)
        return first.address

    def made_alone(self, what=()) -> str:
        address = self.made(what)
        self.over()
        return address

    def over(self) -> None:
        for replica in self.replicas:
            replica.in_flight = 0


@pytest.mark.parametrize(
    ("replicas", "tried"),
    [
        ([Replica("busy", in_flight=3), Replica("free", in_flight=1), Replica("full", in_flight=9)], "free busy full"),
        (
            [Replica("far", Locality(2)), Replica("near", Locality(0), in_flight=5), Replica("next", Locality(1))],
            "near next far",
        ),
    ],
    ids=["fewest calls in flight", "nearest region"],
)
def test_the_nearest_region_is_tried_first_and_in_it_the_fewest_calls_in_flight(replicas: list[Replica], tried: str):
    found = order(replicas, (), random.Random())
    assert [replica.address for replica in found] == tried.split()


@pytest.mark.parametrize("prompts", [[prompt(number) for number in range(8)], [()]], ids=["long", "short"])
def test_a_canary_gets_its_share_of_the_calls(prompts):
    stable, canary = Replica("stable", Locality(0, "", 95)), Replica("canary", Locality(0, "canary", 5))
    calls = Calls(stable, canary)
    seen = Counter()
    for number in range(4_000):
        seen[calls.made_alone(prompts[number % len(prompts)])] += 1
    assert 130 <= seen["canary"] <= 280, "5% of 4,000, and five standard deviations"


def test_a_prompt_goes_where_its_beginning_is():
    calls = Calls(Replica("a"), Replica("b"))
    homes = {}
    for number in range(8):
        homes[number] = calls.made(prompt(number))
        calls.over()
    for number in range(8):
        assert calls.made(prompt(number, "another question")) == homes[number]
        calls.over()


def test_two_gateways_choose_the_same_replica_for_a_beginning_that_is_new_to_both():
    one, other = (Calls(Replica("a:1"), Replica("b:1"), Replica("c:1")) for _ in range(2))
    for number in range(20):
        assert one.made(prompt(number)) == other.made(prompt(number))
        one.over()
        other.over()


@pytest.mark.parametrize("seed", range(20))
def test_few_beginnings_are_shared_out_evenly(seed: int):
    calls = Calls(Replica("a:1"), Replica("b:1"))
    seen = Counter()
    for number in range(8):
        seen[calls.made(prompt(100 * seed + number))] += 1
        calls.over()
    assert max(seen.values()) <= 5


@pytest.mark.parametrize("slow", [2, 10])
def test_a_slower_replica_gets_fewer_beginnings_that_are_new_and_keeps_its_own(slow: int):
    calls = Calls(Replica("fast", first_s=0.1), Replica("slow", first_s=0.1 * slow))
    chosen = {number: calls.made_alone(prompt(number)) for number in range(500)}
    assert Counter(chosen.values())["slow"] == pytest.approx(500 / (1 + slow), rel=0.3)
    assert all(calls.made_alone(prompt(number)) == address for number, address in chosen.items())


def test_a_popular_beginning_does_not_overload_the_replica_that_has_it():
    a, b = Replica("a"), Replica("b")
    calls = Calls(a, b)
    for _ in range(40):
        calls.made(prompt(1))
    assert abs(a.in_flight - b.in_flight) <= 0.25 * 40 + 2


def test_prompts_without_a_shared_beginning_go_to_a_free_replica():
    calls = Calls(Replica("busy", in_flight=2), Replica("free"))
    assert calls.made(()) == "free"


def test_the_faster_of_equally_loaded_replicas_is_drawn_more_often():
    calls = Calls(Replica("slow", first_s=2.0), Replica("fast", first_s=0.02))
    made = Counter(calls.made_alone() for _ in range(1_000))
    assert 0 < made["slow"] <= 30  # a hundredth


def test_a_replica_whose_speed_is_not_known_is_as_fast_as_the_others():
    calls = Calls(Replica("new"), Replica("one", first_s=0.1), Replica("two", first_s=0.1))
    made = Counter(calls.made_alone() for _ in range(900))
    assert min(made.values()) >= 250


def test_the_fewest_calls_in_flight_count_before_speed():
    calls = Calls(Replica("fast", first_s=0.02, in_flight=1), Replica("slow", first_s=2.0))
    assert calls.made() == "slow"


LONG = "You are a careful assistant. " * 40
SALT = "a"


def test_a_prompt_shorter_than_a_block_has_no_prefix():
    assert not blocks(["What is the capital of France?"], SALT)


def test_the_same_block_after_another_beginning_is_another_block():
    same = "s" * BLOCK_BYTES
    assert blocks(["x" * BLOCK_BYTES + same], SALT)[1] != blocks(["y" * BLOCK_BYTES + same], SALT)[1]


def test_the_ends_of_messages_are_part_of_the_blocks():
    assert blocks(["a" * 300, "b" * 300], SALT) != blocks(["a" * 299, "a" + "b" * 300], SALT)


def test_prompts_of_different_salts_share_no_block():
    prompts = [blocks([LONG], salt) for salt in ("", "a", "b")]
    assert len({block for prompt in prompts for block in prompt}) == sum(map(len, prompts))


def test_only_the_beginning_of_a_very_long_prompt_is_looked_at():
    assert len(blocks([Long("x" * 1_000_000)], SALT)) == 64


def test_a_replica_matches_what_it_was_sent_from_the_first_block_on():
    sent, known = blocks([LONG, "a" * BLOCK_BYTES], SALT), Prefixes()
    known.sent(sent)
    assert known.matched(sent) == len(sent)
    assert known.matched(blocks([LONG, "b" * BLOCK_BYTES], SALT)) == len(LONG) // BLOCK_BYTES
    assert known.matched(blocks(["Another beginning. " * 40], SALT)) == 0


def test_the_oldest_prompt_is_forgotten_first_and_its_end_before_its_beginning():
    known, first, second = Prefixes(most_blocks=3), blocks(["1" * 512], SALT), blocks(["2" * 512], SALT)
    known.sent(first)
    known.sent(second)
    assert known.matched(second) == 2
    assert known.matched(first) == 1
