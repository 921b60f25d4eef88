"""Futures whose result nothing may ask for."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve(future: asyncio.Future[Any]) -> None:
    """Fetch the error of a future that has ended, as its callback: asyncio does not log it then, though nothing asks
    for the result."""
    if not future.cancelled():
        future.exception()
