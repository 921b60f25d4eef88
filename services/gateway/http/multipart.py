"""Forms with a file. They are read whole, within the limit of a body, and kept in memory: containers have no disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from services.gateway.http.errors import NotJson
from services.gateway.http.exchange import Exchange
from services.gateway.http.fields import Fields
from services.runtime.errors import InvalidInput

_MOST_FIELDS = 64


@dataclass(frozen=True, slots=True)
class Form:
    """`fields` are texts, and lists of texts for names that end in `[]`."""

    fields: Fields
    file: bytes


class _InMemory(MultiPartParser):
    spool_max_size = 2**62


async def read_form(exchange: Exchange) -> Form:
    """The form, with its `file`. Raises `NotJson` and `InvalidInput`."""
    kind = exchange.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        raise NotJson("content-type", "multipart/form-data", kind.partition(";")[0] or "none")
    body = await exchange.body()

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = _InMemory(Headers({"content-type": kind}), stream(), max_files=1, max_fields=_MOST_FIELDS)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidInput("body", "a form with one file", error.message) from None
    try:
        return await _read(form)
    finally:
        await form.close()


async def _read(form: FormData) -> Form:
    given: dict[str, Any] = {}
    file: UploadFile | None = None
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            file = value if name == "file" else file
        elif name.endswith("[]"):
            given.setdefault(name.removesuffix("[]"), []).append(value)
        else:
            given[name] = value
    if file is None:
        raise InvalidInput("file", "a file", "none")
    return Form(Fields(given), await file.read())
