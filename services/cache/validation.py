"""Validation of requests. Each check names the field, the limit and the value."""

from __future__ import annotations

import re

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache.config import CacheSettings
from services.runtime.errors import InvalidInput

MAX_TEXTS = 256  # the contract's
MAX_CATEGORY_CHARS = 64  # the contract's
_KEY = re.compile(r"[0-9a-f]{64}")
_KEPT = (chat_pb2.FINISH_REASON_STOP, chat_pb2.FINISH_REASON_LENGTH)


def check_question(question: cache_pb2.Question, settings: CacheSettings) -> None:
    """A tenant, at least one message, each with a role and text, the last one the user's."""
    size = question.ByteSize()
    if size > settings.max_question_bytes:
        raise InvalidInput("question", f"at most {settings.max_question_bytes} bytes", f"{size} bytes")
    if not question.tenant:
        raise InvalidInput("question.tenant", "at least 1 character", "none")
    _check_category("question.category", question.category)
    if not question.messages:
        raise InvalidInput("question.messages", "at least 1", "none")
    for number, message in enumerate(question.messages):
        field = f"question.messages[{number}]"
        if message.role not in (chat_pb2.ROLE_SYSTEM, chat_pb2.ROLE_USER, chat_pb2.ROLE_ASSISTANT):
            raise InvalidInput(f"{field}.role", "ROLE_SYSTEM, ROLE_USER or ROLE_ASSISTANT", message.role)
        if not message.content.strip():
            raise InvalidInput(f"{field}.content", "text other than white space", f"{len(message.content)} characters")
    last = question.messages[-1].role
    if last != chat_pb2.ROLE_USER:
        field = f"question.messages[{len(question.messages) - 1}].role"
        raise InvalidInput(field, "ROLE_USER for the last message", chat_pb2.Role.Name(last))


def check_answer(answer: cache_pb2.Answer, settings: CacheSettings) -> None:
    """A complete answer of a size that may be kept."""
    size = answer.ByteSize()
    if size > settings.max_answer_bytes:
        raise InvalidInput("answer", f"at most {settings.max_answer_bytes} bytes", f"{size} bytes")
    if not answer.text.strip():
        raise InvalidInput("answer.text", "text other than white space", f"{len(answer.text)} characters")
    if answer.finish_reason not in _KEPT:
        limit = "FINISH_REASON_STOP or FINISH_REASON_LENGTH"
        raise InvalidInput("answer.finish_reason", limit, _name(chat_pb2.FinishReason, answer.finish_reason))


def check_ttl_ms(request: cache_pb2.StoreRequest, settings: CacheSettings) -> int:
    """How long to keep the answer: the caller's time, capped, or the service's own."""
    if not request.HasField("ttl_ms"):
        return min(settings.default_ttl_ms, settings.max_ttl_ms)
    if request.ttl_ms < 1:
        raise InvalidInput("ttl_ms", "at least 1", request.ttl_ms)
    return min(request.ttl_ms, settings.max_ttl_ms)


def check_min_similarity(request: cache_pb2.LookupRequest) -> float | None:
    """The least similarity of a semantic hit that the caller accepts; None where it does not say, 1 where the question
    is for exact hits alone."""
    if request.question.exact_only:
        return 1.0
    if not request.HasField("min_similarity"):
        return None
    if not 0.5 <= request.min_similarity <= 1:  # NaN is neither
        raise InvalidInput("min_similarity", "0.5 to 1", request.min_similarity)
    return request.min_similarity


def check_max_wrong(request: cache_pb2.LookupRequest) -> float:
    """Wrong hits that the caller allows for, as a share; 1 where it does not say."""
    if not request.HasField("max_wrong"):
        return 1.0
    if not 0 < request.max_wrong <= 1:  # NaN is neither
        raise InvalidInput("max_wrong", "above 0, at most 1", request.max_wrong)
    return request.max_wrong


def check_stale_ms(request: cache_pb2.LookupRequest) -> int:
    """How long an exact hit may have been expired; 0: not at all."""
    if request.stale_within_ms < 0:
        raise InvalidInput("stale_within_ms", "at least 0", request.stale_within_ms)
    return request.stale_within_ms


def check_target(request: cache_pb2.InvalidateRequest) -> None:
    """Exactly one of a key and a tenant; an owner beside a key alone."""
    target = request.WhichOneof("target")
    if target is None:
        raise InvalidInput("target", "one of key and tenant", "none")
    if target == "tenant" and not request.tenant:
        raise InvalidInput("tenant", "at least 1 character", "none")
    if target == "key" and not _KEY.fullmatch(request.key):
        raise InvalidInput("key", "64 hexadecimal digits in lower case", request.key)
    if request.owner and target != "key":
        raise InvalidInput("owner", "none without a key", request.owner)


def check_report(request: cache_pb2.ReportVerdictRequest) -> None:
    """Check the tenant and the answer of a report."""
    if not request.tenant:
        raise InvalidInput("tenant", "at least 1 character", "none")
    if request.WhichOneof("what") is None:
        raise InvalidInput("what", "one of key and sample", "none")
    field, key = ("sample.key", request.sample.key) if request.HasField("sample") else ("key", request.key)
    if not _KEY.fullmatch(key):
        raise InvalidInput(field, "64 hexadecimal digits in lower case", key)
    if not 0 <= request.sample.score <= 1:  # NaN is neither
        raise InvalidInput("sample.score", "0 to 1", request.sample.score)
    _check_category("sample.category", request.sample.category)


def check_texts(texts: list[str]) -> None:
    """1 to 256 texts, none of them empty."""
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise InvalidInput("texts", f"1 to {MAX_TEXTS}", len(texts))
    for number, text in enumerate(texts):
        if not text.strip():
            raise InvalidInput(f"texts[{number}]", "text other than white space", f"{len(text)} characters")


def _check_category(field: str, category: str) -> None:
    if len(category) > MAX_CATEGORY_CHARS:
        raise InvalidInput(field, f"at most {MAX_CATEGORY_CHARS} characters", f"{len(category)} characters")


def _name(enum: type, number: int) -> object:
    names = {value: name for name, value in enum.items()}  # type: ignore[attr-defined]
    return names.get(number, number)
