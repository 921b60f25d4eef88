"""Limits of constraints on answers."""

from __future__ import annotations

from pydantic import Field

from services.gateway.settings.group import Group
from services.runtime import limits
from services.runtime.process.fixed import Fixed


class ConstraintSettings(Group):
    """Limits of a `response_format`. Larger ones occupy an engine and delay all its callers."""

    max_bytes: Fixed[int] = Field(
        limits.CONSTRAINT_BYTES, ge=1, description="Largest JSON Schema, or texts of a choice together."
    )
    max_depth: Fixed[int] = Field(
        limits.CONSTRAINT_DEPTH, ge=1, le=64, description="Objects and arrays in each other, in a JSON Schema's text."
    )
    max_nodes: Fixed[int] = Field(3_000, ge=1, description="Objects and arrays of a JSON Schema's text, altogether.")
    max_properties: Fixed[int] = Field(
        500, ge=0, description="Properties and definitions of a JSON Schema, altogether."
    )
    max_alternatives: Fixed[int] = Field(
        1_000,
        ge=0,
        description="Values and schemas in `enum`, `anyOf`, `oneOf`, `allOf` and other lists, altogether; "
        "and the texts of a choice.",
    )
    max_repetition: Fixed[int] = Field(
        10_000,
        ge=1,
        description="How often something may be repeated, altogether: the counts of items and properties, "
        "`multipleOf`, and the characters of regular expressions with `{n,m}` written out.",
    )
    max_length: Fixed[int] = Field(limits.LONG_CONTENT_BYTES, ge=0, description="`minLength` and `maxLength`, each.")
    max_patterns: Fixed[int] = Field(100, ge=0, description="Regular expressions in a JSON Schema.")
    max_pattern_bytes: Fixed[int] = Field(2_048, ge=1, description="Longest regular expression.")
    max_grammar_bytes: Fixed[int] = Field(8_192, ge=1, description="Largest grammar.")
    check: bool = Field(True, description="Whether answers are checked when the request does not say so (`repair`).")
    check_ms: Fixed[float] = Field(
        200, gt=0, le=10_000, description="The processor time that the check of one answer may take, when it is whole."
    )
