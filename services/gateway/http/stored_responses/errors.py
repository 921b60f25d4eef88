"""Errors of stored responses."""

from __future__ import annotations

from services.runtime.errors import InvalidInput, Missing, ServiceError, Unavailable, shorten


class PreviousResponseNotFound(InvalidInput):
    """A request that goes on with a response that is not stored, or not for its caller."""

    reason = "PREVIOUS_RESPONSE_NOT_FOUND"

    def __init__(self, response_id: str):
        message = f"Previous response with id '{shorten(response_id)}' not found."
        ServiceError.__init__(self, message, field="previous_response_id")


class ItemNotFound(Missing):
    """An item that an input refers to, and that is not stored, or not for its caller."""

    reason = "ITEM_NOT_FOUND"

    def __init__(self, item_id: str):
        super().__init__(f"Item with id '{shorten(item_id)}' not found.", field="input")


class ResponseNotFound(Missing):
    """A response that is not stored, or not for its caller."""

    reason = "RESPONSE_NOT_FOUND"

    def __init__(self, response_id: str):
        super().__init__(f"Response with id '{shorten(response_id)}' not found.")


class StoreUnavailable(Unavailable):
    """The store of responses cannot be reached."""

    reason = "STORE_UNAVAILABLE"
