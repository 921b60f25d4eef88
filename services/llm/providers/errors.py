"""A provider's refusal as an error for our caller. Neither the credential nor the provider's page ever gets out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from services.llm.answer import Answer
from services.llm.errors import (
    AnswerTooLarge,
    ContentRefused,
    EngineBusy,
    EngineDown,
    MalformedOutput,
    ModelNotAtProvider,
    ProviderAway,
    ProviderNotReached,
    ProviderRefused,
    RequestRefused,
)
from services.llm.providers import context
from services.llm.providers.extra_fields import named
from services.llm.providers.meanings import OVERLOADED, Meaning, meaning
from services.llm.providers.retry_delay import retry_delay_s, said_delay_s
from services.llm.providers.transport.wire import Broken, NoReply, NotConnected, TooLong, failure
from services.runtime.deadline import Deadline
from services.runtime.errors import NotSupported, ServiceError, TooLate, shorten
from services.runtime.strict_json import compact

_MAX_OWN_CHARACTERS, _MAX_MESSAGE_CHARACTERS = 3_000, 400  # gRPC's trailers have 8 KiB, and this in base64
_MOST_SAID = 160  # characters of a provider's words in a message of ours
_READ_BY_CLIENTS = ("type", "code", "param")
# Where a body without an error object says why: Cohere and Mistral; Voyage and Jina (FastAPI: a list); Text Embeddings
# Inference and Ollama.
_MESSAGES = ("message", "detail", "error")
_FAILURES = range(400, 600)  # statuses; other numbers are codes of a provider's own
_BUSY = {OVERLOADED: "is overloaded"}
# By the types of Anthropic's errors, some of which are OpenAI's as well; the last ones are codes of OpenAI's.
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": OVERLOADED,
    "context_length_exceeded": 400,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "model_not_found": 404,
    "content_policy_violation": 400,
    "content_filter": 400,
}


def to_error(status: int, headers: Mapping[str, str], body: str, api_key: str, model: str = "") -> ServiceError:
    """The error for an HTTP status other than 200. `model`: the provider's name of it."""
    said = _said(status, headers, _without(api_key, body))
    error = _error(said)
    field, why = _explanation(error)
    match meaning(status, error, why):
        case Meaning.CREDENTIAL:
            return ProviderRefused("the provider rejects the credential", status=str(status))
        case Meaning.FUNDS:
            return ProviderRefused("the credit at the provider is used up", status=str(status))
        case Meaning.MODEL:
            outline = f"the provider does not know the model {shorten(model)}, or the address"
            return ModelNotAtProvider(_with(outline, error, why), status=str(status), outline=outline)
        case Meaning.FEATURE:
            return NotSupported(f"the model at the provider lacks a feature: {shorten(why, _MOST_SAID)}")
        case Meaning.BUSY:
            verb = _BUSY.get(status, "limits the rate")
            return EngineBusy(f"the provider {verb}", retry_delay_s=retry_delay_s(headers, error))
        case Meaning.BROKEN:
            outline = f"the provider answered HTTP {status}"
            message, delay_s = _with(outline, error, why), said_delay_s(headers)
            more = {"outline": outline} if message != outline else {}
            return EngineDown(message, retry_delay_s=delay_s, status=str(status), **more)
        case Meaning.CONTENT:
            return ContentRefused(field, shorten(why, _MOST_SAID), status, _own(_error(said, lists=False)))
        case Meaning.REQUEST:
            return _refused(error, status, _own(_error(said, lists=False)))
        case Meaning.MALFORMED:
            outline = "the model wrote what its provider cannot read"
            return MalformedOutput(_with(outline, error, why), status=str(status), outline=outline)


def _said(status: int, headers: Mapping[str, str], body: str) -> str:
    """The body as JSON. Text Embeddings Inference has plain text for invalid fields of a request."""
    is_text = headers.get("content-type", "").lower().startswith("text/plain")
    return compact({"message": body.strip()}).decode() if is_text and status in (400, 413, 422) else body


def _refused(error: Mapping[str, Any], status: int, own: str) -> RequestRefused:
    field, why = _explanation(error)
    too_long = context.refused(error, why, status, own)
    return too_long or RequestRefused(field, shorten(why, _MOST_SAID), status, own, named(error))


def _with(outline: str, error: Mapping[str, Any], why: str) -> str:
    return f"{outline}: {shorten(why, _MOST_SAID)}" if error and why else outline


def incomplete(answer: Answer, api_key: str, model: str) -> ServiceError:
    """The error of an answer whose stream is over and not whole."""
    if answer.error:
        return to_error(in_stream_status(answer.error), {}, answer.error, api_key, model)
    if answer.broken:
        return EngineDown("the provider sent an event that its API does not have")
    return EngineDown(f"the provider ended the stream {'in mid-answer' if answer.begun else 'before its first token'}")


def in_stream_status(event: str) -> int:
    """The HTTP status that an error inside a stream would have had; 502 where it does not say."""
    error: Any = json.loads(event).get("error")
    if not isinstance(error, dict):
        return 502
    if isinstance(code := error.get("code"), int) and code in _FAILURES:
        return code
    names = (str(error.get(name)) for name in ("type", "code"))
    return next((_STATUSES[name] for name in names if name in _STATUSES), 502)


def unreachable(error: Exception, deadline: Deadline, *, reached: bool) -> EngineDown | TooLate | AnswerTooLarge:
    """The error for a provider that did not answer, or not to the end. `reached`: there has been a connection before,
    and another one is expected."""
    if deadline.is_over():  # a timer may be a little early
        return TooLate("the provider did not answer in time")
    if isinstance(error, TooLong):
        return AnswerTooLarge(error.most_bytes, "messages", "ask for less, such as a smaller picture")
    kind = ProviderAway if isinstance(error, NoReply) else EngineDown
    if isinstance(error, NotConnected) and reached:
        kind = ProviderNotReached
    return kind(f"the provider cannot be reached, or broke off: {word(error)}")


def word(error: Exception) -> str:
    """Words for a failure. `Broken` holds nothing that is secret; other errors' texts may."""
    return str(error) if isinstance(error, Broken) else failure(error)


def _without(api_key: str, body: str) -> str:
    """A provider's text without our credential, however JSON has written that."""
    for written in {api_key, json.dumps(api_key)[1:-1]} - {""}:
        body = body.replace(written, "…")
    return body


def _own(error: Mapping[str, Any]) -> str:
    """The provider's error object as JSON; empty where there is none. A text too long for a trailer is left out, but
    for what all clients read."""
    if not isinstance(error.get("message"), str):
        return ""
    if len(own := compact(error).decode()) <= _MAX_OWN_CHARACTERS:
        return own
    given = {name: error[name] for name in _READ_BY_CLIENTS if name in error}
    known = {name: value for name, value in given.items() if isinstance(value, str | int | None)}
    own = compact({**known, "message": shorten(error["message"], _MAX_MESSAGE_CHARACTERS)}).decode()
    return own if len(own) <= _MAX_OWN_CHARACTERS else ""


def _error(body: str, *, lists: bool = True) -> Mapping[str, Any]:
    """OpenAI's error object, or Anthropic's; the body itself of a provider that has no object in it, with a `message`;
    empty for anything else."""
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if lists and isinstance(decoded, list) and decoded:
        decoded = decoded[0]  # Gemini's
    error = decoded.get("error") if isinstance(decoded, dict) else None
    if isinstance(error, dict) or not isinstance(decoded, dict):
        return error or {}
    said = next((decoded[name] for name in _MESSAGES if decoded.get(name)), None)
    return {**decoded, "message": said if isinstance(said, str) else compact(said).decode()} if said else {}


def _explanation(error: Mapping[str, Any]) -> tuple[str, str]:
    """(the parameter at fault, what the provider said)."""
    if not error:
        return "request", "no reason given"
    return str(error.get("param") or "request"), " ".join(str(error.get("message") or "").split())
