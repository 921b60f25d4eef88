"""Errors of the gateway, beyond the runtime's."""

from __future__ import annotations

from services.runtime.errors import (
    LONGEST_LIMIT,
    Exhausted,
    Faulty,
    Forbidden,
    InvalidInput,
    Missing,
    TooLate,
    Unauthenticated,
    Unavailable,
    shorten,
)


def refuses_choices(error: Exception) -> bool:
    """Whether a request is refused because it asks for several answers (`n`): by a model, or beside a policy of the
    gateway. A refusal by the provider itself is none: it has read the request."""
    return (
        isinstance(error, InvalidInput)
        and error.metadata.get("field") == "n"
        and "provider_error" not in error.metadata
    )


class KeyUnknown(Unauthenticated):
    """The API key is missing or not in the list."""

    reason = "KEY_UNKNOWN"


class KeyExpired(Unauthenticated):
    """The API key is in the list, and was good until the time that the message names."""

    reason = "KEY_EXPIRED"


class CredentialExpired(Unauthenticated):
    """The token has expired while its call went on."""

    reason = "CREDENTIAL_EXPIRED"


class CredentialsDiffer(Forbidden):
    """The API key is of another tenant than the one that the edge proved."""

    reason = "CREDENTIALS_DIFFER"


class GuardRefused(Forbidden):
    """The request holds what its tenant's guard refuses. Names the rule and the message, never what it says."""

    reason = "GUARD_REFUSED"


class FieldDenied(Forbidden):
    """The request has a provider do what its tenant may not have it do. Names the field and the setting."""

    reason = "FIELD_DENIED"


class GuardLate(TooLate):
    """The guard was not done in time, and its setting is to let nothing pass."""

    reason = "GUARD_LATE"


class BodiesWaiting(Exhausted):
    """The memory for requests that are being read is full."""

    reason = "BODIES_WAITING"


class AnswersWaiting(Exhausted):
    """The memory for answers that wait for their clients is full."""

    reason = "ANSWERS_WAITING"


class WarmDenied(Forbidden):
    """The caller's tenant may not have the mesh warmed."""

    reason = "WARM_DENIED"


class FormBroken(Faulty):
    """The answer does not match the request's `response_format`. Says where, and quotes nothing of the answer."""

    reason = "FORM_BROKEN"


class ModelUnknown(Missing):
    """A model's name that no model has."""

    reason = "MODEL_UNKNOWN"

    def __init__(self, name: str, known: str):
        shown, limit = shorten(name), shorten(f"one of {known}", LONGEST_LIMIT)
        super().__init__(f"model: {limit}, got {shown}", field="model", limit=limit, value=shown)


class ModelUnavailable(Unavailable):
    """None of the models for the request can be reached."""

    reason = "MODEL_UNAVAILABLE"


class BudgetSpent(TooLate):
    """The call's own deadline was over before the answer could start."""

    reason = "BUDGET_SPENT"


class Unfinished(TooLate):
    """The time was over while a backend worked, and was too little for so much work: no failure of the backend."""


class Idle(TooLate):
    """A conversation in which nothing came for too long."""

    reason = "IDLE"


class AnswerNotKept(Missing):
    """This gateway has no answer with this key: it was begun elsewhere, failed, or ended longer ago than answers are
    kept."""

    reason = "ANSWER_NOT_KEPT"
