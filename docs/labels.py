"""Writes the lists of labels in `reports.md` from the enums that the gateway uses. Run it with `make docs`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from services.gateway.decisions import Changed
from services.gateway.labels import Act, Bypassed, Degraded, Policy

PAGE = Path(__file__).with_name("reports.md")
# The labels of a list, by the line above it.
LISTS: dict[str, type[Degraded] | type[Bypassed] | type[Changed]] = {
    "## Degraded answers": Degraded,
    "What was done:": Changed,
    "Why the cache was left out:": Bypassed,
}


def main() -> None:
    PAGE.write_text(render(PAGE.read_text()))
    print(f"{PAGE.name}: {len(Degraded) + len(Bypassed) + len(Changed)} labels, {len(Act)} decisions")


def render(page: str) -> str:
    """The page with its lists as they should be."""
    for head, labels in LISTS.items():
        page = replaced(page, head, [f"- `{label}`: {label.means[0].upper()}{label.means[1:]}." for label in labels])
    return replaced(page, "| policy | actions |", list(_policies()))


def _policies() -> Iterator[str]:
    """A row for each policy: its actions, each in a line."""
    for policy in Policy:
        said = [act.value for act in Act if act.value.policy is policy]
        actions = "<br>".join(f"`{each.action}`: {each.means}" for each in said)
        yield f"| `{policy}` | {actions} |"


def replaced(page: str, head: str, rows: Sequence[str], name: str = PAGE.name) -> str:
    """The page, with the rows of a table, or of a list, under the line `head` replaced. Raises ValueError where the
    page `name` has none."""
    found = re.search(rf"^({re.escape(head)}\n(?:\|[-|]+\|)?\n)(?:(?:\||- |  ).*\n)*", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"{name}: no table or list under {head}")
    return page.replace(found[0], "\n".join([found[1].rstrip("\n"), *([] if head[0] == "|" else [""]), *rows, ""]))


if __name__ == "__main__":
    main()
