"""Errors of pictures and models, as leaves of the one error tree."""

from __future__ import annotations

from typing import ClassVar

from services.runtime.errors import InvalidInput, Missing, Unavailable


class ImageRefused(InvalidInput):
    """The picture is not a PNG, JPEG, WebP, GIF or AVIF, is too large, or is damaged."""

    reason: ClassVar[str] = "IMAGE_REFUSED"


class ModelMissing(Missing):
    """No model of that name is loaded."""

    reason: ClassVar[str] = "MODEL_MISSING"


class EngineFailed(Unavailable):
    """The engine failed, or its result is unusable; a retry may work."""

    reason: ClassVar[str] = "ENGINE_FAILED"


class BadModel(Exception):
    """A model cannot be loaded; the message, for the operator, names the file, the field and the value."""
