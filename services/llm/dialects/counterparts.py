"""Fields of one API that others have under another name, out of a caller's own words: how much a model thinks and
writes, and whose a request is. Only values that the other API takes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from services.llm.engine import Original

NO_EFFORT = "none"
_EFFORTS = ("low", "medium", "high", "xhigh", "max")  # in the packages `openai` and `anthropic` alike
_OPENAIS = "minimal"
_BY_EFFORT = {
    f"{place}={given}": effort
    for effort in (*_EFFORTS, NO_EFFORT, _OPENAIS)
    for place, given in (
        ("reasoning_effort", f'"{effort}"'),
        ("output_config.effort", f'"{effort}"'),
        ("reasoning", f'{{"effort":"{effort}"}}'),
        ("reasoning.effort", f'"{effort}"'),
    )
}
_BY_VERBOSITY = {
    f'{place}="{word}"': word for word in ("low", "medium", "high") for place in ("verbosity", "text.verbosity")
}
_USERS = ("safety_identifier", "user")
_LONGEST_USER = 64  # characters; as OpenAI has it
_FORMS = ("response_format.json_schema", "text.format")
_OF_FORMS = {  # JSON that OpenAI takes
    "name": re.compile(r'"[A-Za-z0-9_-]{1,64}"'),
    "strict": re.compile("true|false"),
    "description": re.compile(r'".{1,1024}"'),
}
# Fields with their values, for `Model.takes`: of every API, and of OpenAI's.
EFFORTS = frozenset(said for said, effort in _BY_EFFORT.items() if effort != _OPENAIS)
OPENAIS = frozenset((*_BY_EFFORT, *_BY_VERBOSITY))


def effort(original: Original | None) -> str:
    """How much the model is to think: `none` to `max`; empty where the request does not say, or not so."""
    return _word(original, _BY_EFFORT)


def verbosity(original: Original | None) -> str:
    """How much the model is to write: `low` to `high`; empty where the request does not say, or not so."""
    return _word(original, _BY_VERBOSITY)


def _word(original: Original | None, words: Mapping[str, str]) -> str:
    untranslated = original.untranslated if original else {}
    return next(filter(None, (words.get(f"{place}={given}") for place, given in untranslated.items())), "")


def form(original: Original | None) -> dict[str, Any]:
    """`name`, `strict` and `description` of a form, as its caller says them; a name where the caller says none."""
    untranslated = original.untranslated if original else {}
    said: dict[str, Any] = {"name": "answer", "strict": True}
    for name, kind in _OF_FORMS.items():
        given = next((untranslated[f"{place}.{name}"] for place in _FORMS if f"{place}.{name}" in untranslated), "null")
        if kind.fullmatch(given):
            said[name] = json.loads(given)
    return said


def names_user(place: str, given: str) -> bool:
    """Whether a field, whose JSON is `given`, says whose the request is and nothing else."""
    metadata = json.loads(given) if place == "metadata" else None
    return place in _USERS or (isinstance(metadata, dict) and metadata.keys() == {"user_id"})


def end_user(original: Original | None) -> str:
    """The end user of the request, as its caller names them to a provider; empty if it has none, or a long name."""
    untranslated = original.untranslated if original else {}
    names = [json.loads(untranslated[place]) for place in _USERS if place in untranslated]
    metadata = json.loads(untranslated.get("metadata", "null"))
    names += [metadata.get("user_id")] if isinstance(metadata, dict) else []
    return next((name for name in names if isinstance(name, str) and 0 < len(name) <= _LONGEST_USER), "")
