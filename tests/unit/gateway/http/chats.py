"""Chat completions that are read, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.fields import parse
from services.gateway.http.request_options import RequestOptions
from services.runtime.errors import InvalidInput

ASKED = [{"role": "user", "content": "Hello"}]


def read(headers: dict[str, str] | None = None, **body: Any) -> RequestOptions:
    given = parse(json.dumps({"model": "m", "messages": ASKED, **body}).encode())
    return read_chat(given, headers or {}, ["m"])


def refused(headers: dict[str, str] | None = None, **body: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(headers, **body)
    return caught.value.message
