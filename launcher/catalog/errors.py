"""Errors of the catalogue."""

from __future__ import annotations


class CatalogError(Exception):
    """Base of the catalogue's errors. The message says what to do."""


class UnknownModel(CatalogError):
    """The catalogue has no model of that name."""


class NotPulled(CatalogError):
    """The model is in the catalogue and not on this machine."""


class ModelUnavailable(CatalogError):
    """No source has the model's files."""


class Damaged(CatalogError):
    """A file is not what the catalogue expects."""


class ConversionFailed(CatalogError):
    """The conversion of the downloaded files failed."""
