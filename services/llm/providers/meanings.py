"""The meaning of a provider's refusal: the table by which each becomes one error.

The first row that fits counts; a refusal that fits none has the meaning of its status. Providers say the same with
different statuses, and different things with the same one: 403 is a flagged input or a credential without rights, 429 a
rate or an empty account, 400 whatever its words say.

Sources, by their names in the rows: https://platform.openai.com/docs/guides/error-codes; Azure:
https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter; OpenRouter:
https://openrouter.ai/docs/api/reference/errors-and-debugging; Anthropic: https://docs.claude.com/en/api/errors; Gemini:
https://ai.google.dev/gemini-api/docs/troubleshooting; Mistral: https://docs.mistral.ai/api (`guardrails`);
Bedrock: https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html; Groq:
https://console.groq.com/docs/errors; DeepSeek: https://api-docs.deepseek.com/quick_start/error_codes; Kimi:
https://platform.moonshot.ai/docs/api/errors; Qwen: https://help.aliyun.com/model-studio/error-code; xAI and others:
LiteLLM's `exception_mapping_utils.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any

OVERLOADED = 529  # the status that Anthropic has for it
_MOST_READ = 2_048  # characters of what a provider says
_MOST_NAMES = 64


class Meaning(Enum):
    """The cause of a refusal."""

    CONTENT = "content"  # of the request: flagged by a filter
    REQUEST = "request"
    FUNDS = "funds"
    CREDENTIAL = "credential"
    MODEL = "model"  # or the address
    FEATURE = "feature"  # of the request, which the model lacks
    MALFORMED = "malformed"  # what the model wrote
    BUSY = "busy"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class _Row:
    """A refusal with one of these statuses that has one of these names, or whose message has these words. A message may
    repeat what a caller sent: words for what the operator must correct are its first ones."""

    meaning: Meaning
    statuses: tuple[int, ...]
    names: frozenset[str] = frozenset()  # types, codes, and reasons of details
    words: re.Pattern[str] | None = None

    def fits(self, status: int, names: Set[str], said: str) -> bool:
        """Whether a refusal with this status, these names and this message is of the row."""
        if status not in self.statuses:
            return False
        if not self.names and self.words is None:
            return True
        return not self.names.isdisjoint(names) or bool(self.words and self.words.search(said))


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


_STORED = r"\b(?:resp|conv|file|vs|pmpt|cntr|container|msg|skill)_\w"  # ids of what a provider stores for callers
_ROWS = (
    _Row(
        Meaning.CONTENT,
        (400, 403, 422, 451),
        frozenset(
            {
                "content_policy_violation",  # OpenAI, OpenRouter
                "content_filter",  # Azure
                "ResponsibleAIPolicyViolation",  # Azure, in `innererror`
                "moderation_blocked",  # OpenAI
                "flagged_input",  # OpenRouter, in `metadata`
                "refusal",  # OpenRouter
                "image_content_policy_violation",  # OpenAI's Responses
                "bio_policy",
                "misalignment_policy_violation",
                "data_inspection_failed",  # Qwen
                "DataInspectionFailed",
            }
        ),
        _words(
            "violating our usage policy",  # OpenAI
            "safety system",
            "input was flagged",  # OpenRouter
            "blocked by guardrail",
            "guardrails?.{0,40}block",  # Mistral
            "content exists risk",  # DeepSeek
            "violates usage guidelines",  # xAI
        ),
    ),
    _Row(Meaning.FUNDS, (402,)),
    _Row(
        Meaning.FUNDS,
        (400, 403, 429),
        frozenset(
            {
                "insufficient_quota",  # OpenAI
                "billing_hard_limit_reached",
                "billing_error",  # Anthropic
                "exceeded_current_quota_error",  # Kimi
                "Arrearage",  # Qwen
            }
        ),
        _words(
            "^your credit balance is too low",  # Anthropic
            "^you have reached your specified",
            "^your newly created team doesn't have any credits",  # xAI
        ),
    ),
    _Row(
        Meaning.MODEL,
        (400, 403, 404),
        frozenset({"model_not_found", "DeploymentNotFound", "invalid_model"}),  # OpenAI, Azure, Mistral
        _words(
            r"^\S{1,256} is not a valid model id",  # OpenRouter
            "^model not exist",  # DeepSeek
            "^the provided model identifier is invalid",  # Bedrock
        ),
    ),
    _Row(Meaning.REQUEST, (404,), words=_words(_STORED, "^item with id ")),
    _Row(Meaning.FEATURE, (404,), words=_words("^no endpoints found that support")),  # OpenRouter: pictures, tools
    _Row(Meaning.MODEL, (404,)),
    _Row(Meaning.CREDENTIAL, (401, 403)),
    _Row(
        Meaning.CREDENTIAL,
        (400,),
        frozenset({"API_KEY_INVALID", "FAILED_PRECONDITION"}),  # Gemini; the latter: no access from this country
        _words("^api key not valid", "^incorrect api key"),  # Gemini, xAI
    ),
    _Row(
        Meaning.MALFORMED,
        (400, 422),
        frozenset({"tool_use_failed", "json_validate_failed", "output_parse_failed"}),  # Groq
        _words("^failed to (?:call a function|generate json)"),
    ),
    _Row(Meaning.BUSY, (429, OVERLOADED)),
    _Row(Meaning.REQUEST, (400, 413, 422)),
)


def meaning(status: int, error: Mapping[str, Any], said: str) -> Meaning:
    """The meaning of a refusal with this status, error object and message."""
    names, looked_at = set(_names(error)), said[:_MOST_READ]
    return next((row.meaning for row in _ROWS if row.fits(status, names, looked_at)), Meaning.BROKEN)


def _names(error: Mapping[str, Any]) -> Iterator[str]:
    """The names in an error: its type and codes, those of objects in it, and the fields of `metadata`."""
    waiting, seen = [dict(error)], 0
    while waiting and seen < _MOST_NAMES:
        each = waiting.pop()
        for name, value in each.items():
            seen += 1
            if name in ("type", "code", "status", "reason", "error_type") and isinstance(value, str):
                yield value
            elif name in ("innererror", "metadata") and isinstance(value, dict):
                yield from value
                waiting.append(value)
            elif name == "details" and isinstance(value, list):
                waiting += [detail for detail in value[:_MOST_NAMES] if isinstance(detail, dict)]
