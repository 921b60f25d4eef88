import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from services.gateway.upstream import balance
from services.gateway.upstream.balance import Locality, Policy, order
from services.gateway.upstream.prefix import Prefixes, blocks


@dataclass
class Replica:
    address: str
    locality: Locality = field(default_factory=Locality)
    in_flight: int = 0
    turn: float = 0.0
    prefixes: Prefixes = field(default_factory=Prefixes)


def prompt(number: int, question: str = "?"):
    return blocks([f"System prompt number {number}. " * 40, question], "")


class Calls:
    """Calls made one after the other; each stays in flight until it is over."""

    def __init__(self, *replicas: Replica, policy: Policy):
        self.replicas, self.policy, self.rng = replicas, policy, random.Random(1)

    def made(self, what=()) -> str:
        first = next(order(self.replicas, self.policy, what, self.rng))
        balance.taken(first, what)
        return first.address

    def over(self) -> None:
        for replica in self.replicas:
            replica.in_flight = 0


def test_nobody_to_choose_from():
    assert not list(order([], "prefix", (), random.Random()))


def test_round_robin_takes_each_in_turn():
    calls = Calls(Replica("a"), Replica("b"), Replica("c"), policy="round_robin")
    assert Counter(calls.made() for _ in range(9)) == {"a": 3, "b": 3, "c": 3}


def test_round_robin_gives_a_newcomer_its_turn_and_no_more():
    old, new = Replica("old"), Replica("new")
    calls = Calls(old, policy="round_robin")
    for _ in range(100):
        calls.made()
    balance.joined(new, [old])
    calls.replicas = (old, new)
    assert Counter(calls.made() for _ in range(10)) == {"old": 5, "new": 5}


def test_the_fewest_calls_in_flight_is_first():
    replicas = [Replica("busy", in_flight=3), Replica("free", in_flight=1), Replica("full", in_flight=9)]
    tried = [replica.address for replica in order(replicas, "least_request", (), random.Random())]
    assert tried == ["free", "busy", "full"]


def test_the_nearest_region_is_tried_first_and_the_others_by_distance():
    replicas = [Replica("far", Locality(2)), Replica("near", Locality(0), in_flight=5), Replica("next", Locality(1))]
    tried = [replica.address for replica in order(replicas, "least_request", (), random.Random())]
    assert tried == ["near", "next", "far"]


@pytest.mark.parametrize("policy", ["prefix", "least_request", "round_robin"])
def test_a_canary_gets_its_share_of_the_calls_whatever_the_policy(policy: Policy):
    stable, canary = Replica("stable", Locality(0, "", 95)), Replica("canary", Locality(0, "canary", 5))
    calls = Calls(stable, canary, policy=policy)
    seen = Counter()
    for number in range(4_000):
        seen[calls.made(prompt(number % 8))] += 1
        calls.over()
    assert 130 <= seen["canary"] <= 280, "5% of 4,000, and five standard deviations"


def test_a_prompt_goes_where_its_beginning_is():
    calls = Calls(Replica("a"), Replica("b"), policy="prefix")
    homes = {}
    for number in range(8):
        homes[number] = calls.made(prompt(number))
        calls.over()
    for number in range(8):
        assert calls.made(prompt(number, "another question")) == homes[number]
        calls.over()


def test_two_gateways_choose_the_same_replica_for_a_beginning_that_is_new_to_both():
    one, other = (Calls(Replica("a:1"), Replica("b:1"), Replica("c:1"), policy="prefix") for _ in range(2))
    for number in range(20):
        assert one.made(prompt(number)) == other.made(prompt(number))
        one.over()
        other.over()


def test_new_beginnings_are_spread():
    calls = Calls(Replica("a:1"), Replica("b:1"), policy="prefix")
    seen = Counter()
    for number in range(100):
        seen[calls.made(prompt(number))] += 1
        calls.over()
    assert min(seen.values()) >= 25


@pytest.mark.parametrize("seed", range(20))
def test_few_beginnings_are_shared_out_evenly(seed: int):
    calls = Calls(Replica("a:1"), Replica("b:1"), policy="prefix")
    seen = Counter()
    for number in range(8):
        seen[calls.made(prompt(100 * seed + number))] += 1
        calls.over()
    assert max(seen.values()) <= 5


def test_a_popular_beginning_does_not_overload_the_replica_that_has_it():
    a, b = Replica("a"), Replica("b")
    calls = Calls(a, b, policy="prefix")
    for _ in range(40):
        calls.made(prompt(1))
    assert abs(a.in_flight - b.in_flight) <= 0.25 * 40 + 2


def test_prompts_without_a_beginning_to_share_go_to_who_is_free():
    calls = Calls(Replica("busy", in_flight=2), Replica("free"), policy="prefix")
    assert calls.made(()) == "free"
