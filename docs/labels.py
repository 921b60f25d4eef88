"""Writes the tables of labels in `reports.md` from the enums that the gateway uses. Run it with `make docs`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from services.gateway.decisions import Changed
from services.gateway.labels import Act, Bypassed, Degraded, Policy

PAGE = Path(__file__).with_name("reports.md")


def main() -> None:
    PAGE.write_text(render(PAGE.read_text()))
    print(f"{PAGE.name}: {len(Degraded) + len(Bypassed) + len(Changed)} labels, {len(Act)} decisions")


def render(page: str) -> str:
    """The page with its tables as they should be."""
    degraded, bypassed, changed = [
        [f"| `{label}` | {label.means[0].upper()}{label.means[1:]}. |" for label in labels]
        for labels in (Degraded, Bypassed, Changed)
    ]
    page = replaced(page, "| label | what happened |", degraded)
    page = replaced(page, "| reason | why the cache was left out |", bypassed)
    page = replaced(page, "| change | what was done |", changed)
    return replaced(page, "| policy | actions |", list(_policies()))


def _policies() -> Iterator[str]:
    """A row for each policy: its actions, each in a line."""
    for policy in Policy:
        said = [act.value for act in Act if act.value.policy is policy]
        actions = "<br>".join(f"`{each.action}`: {each.means}" for each in said)
        yield f"| `{policy}` | {actions} |"


def replaced(page: str, head: str, rows: Sequence[str], name: str = PAGE.name) -> str:
    """The page, with the rows under `head` replaced. Raises ValueError where the page `name` has no such table."""
    found = re.search(rf"^{re.escape(head)}\n\|[-|]+\|\n(\|.*\n)*", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"{name}: no table under {head}")
    columns = head.count("|") - 1
    return page.replace(found[0], "\n".join([head, "|" + "---|" * columns, *rows, ""]))


if __name__ == "__main__":
    main()
