"""Whose lookups a record is of."""

from __future__ import annotations

from typing import NamedTuple


class Traffic(NamedTuple):
    """A tenant's lookups of one category of questions; with an empty `category` of those that are of none."""

    tenant: str
    category: str = ""

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"{self.tenant}, category {self.category}" if self.category else self.tenant


EVERYONE = Traffic("")  # stands for all tenants and categories together
