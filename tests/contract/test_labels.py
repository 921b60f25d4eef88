"""Labels are said once: documents and contracts follow the enums."""

from __future__ import annotations

from pathlib import Path

from docs import labels as page
from services.gateway.labels import Act, Policy

CONTRACT = Path(__file__).parents[2] / "protos" / "hedgerow" / "gateway" / "v1" / "gateway.proto"


def test_the_page_of_labels_is_up_to_date() -> None:
    assert page.PAGE.read_text() == page.render(page.PAGE.read_text()), "run `make docs`"


def test_the_contract_names_every_policy() -> None:
    said = next(line for line in CONTRACT.read_text().splitlines() if "The policy: `" in line)
    after = CONTRACT.read_text().split(said)[1].split("string policy")[0]
    assert [word for word in Policy if f"`{word}`" not in said + after] == []


def test_a_decision_is_named_once() -> None:
    assert len({(act.value.policy, act.value.action) for act in Act}) == len(Act)
