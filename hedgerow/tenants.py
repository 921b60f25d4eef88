"""What a mesh file and the gateway's settings share for a tenant: its name, tools, permissions, and expiry times."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, date, datetime, time
from typing import Any, Final, Literal, TypeAlias

LONGEST_NAME: Final = 256
A_NAME: Final = f"1 to {LONGEST_NAME} printable characters in Unicode's form NFKC, without white space around them"
TOOL: Final = r"^(\*|[A-Za-z0-9_*?-]+/.+)$"
A_TIME: Final = "a time such as 2027-01-31 or 2027-01-31T18:00:00Z"
# For what costs more or stores data at a provider.
Permission: TypeAlias = Literal[
    "background",
    "extra_body",
    "fallbacks",
    "files",
    "inference_geo",
    "modalities",
    "n",
    "prediction",
    "priority",
    "prompt_cache_retention",
    "server_tools",
    "service_tier",
    "speed",
    "store",
]


def is_name(name: str) -> bool:
    """Whether the name is distinct from every other one: a second spelling that looks the same, or an invisible
    character, would pass for the tenant that it resembles."""
    plain = name.isprintable() and name == name.strip() and name == unicodedata.normalize("NFKC", name)
    return plain and 0 < len(name) <= LONGEST_NAME


def as_tool(name: str) -> str:
    """A tool, or a pattern of tools, that a tenant may use. Raises ValueError."""
    if not re.match(TOOL, name):
        raise ValueError("a tool is needed as source/name, such as collections/search_*, or * for all")
    return name


def read_moment(given: Any) -> datetime:
    """A time of ISO 8601, as text or as YAML reads it; in UTC where it names no offset. Raises ValueError."""
    try:
        if isinstance(given, str):
            given = datetime.fromisoformat(given)
        elif isinstance(given, date) and not isinstance(given, datetime):
            given = datetime.combine(given, time())
        if isinstance(given, datetime):
            return given.astimezone(UTC) if given.tzinfo else given.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("a time of the years 1 to 9999 in UTC is needed") from None
    except ValueError:
        pass
    raise ValueError(f"{A_TIME} is needed")
