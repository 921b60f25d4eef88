"""The gateway's readers of callers' and models' texts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission import constraint, intake, provider_fields
from services.gateway.answer import prompt_builder
from services.gateway.answer.background_call import verdict
from services.gateway.answer.stages import guard
from services.gateway.cache_eligibility.choice import kinds, looked_at
from services.gateway.guard import injection
from services.gateway.guard.denied import Denied
from services.gateway.guard.screen import Screen
from services.gateway.http import fields, json_limits
from services.gateway.http.endpoints.transcriptions import read_form
from services.gateway.http.server.exchange import Bounds, Exchange
from services.gateway.prompt import compression, protected, window
from services.gateway.settings import permissions
from services.runtime import complexity, strict_json
from services.runtime.security.credentials import SECRETS
from services.runtime.security.personal_data import PERSONAL
from tests.unit.linear.reader import Reader, encodable, whole

_DENIED = Denied(("project titan", "worse"), (r"\bx[a-z ]{1,100}y\b",), 1_000)


def _screened(pieces: Sequence[str]) -> None:
    screen = Screen((*SECRETS, *PERSONAL), _DENIED)
    for piece in pieces:
        screen.feed(piece)
    screen.close()


def _permitted(text: str) -> None:
    """A place of a caller's choice, and a field of it with a text of the caller's."""
    permissions.needed(text, "1")
    permissions.needed(f"{text}]", json.dumps({"type": text, "source": {"type": text}}))
    provider_fields.refuse_left(chat_pb2.Original(untranslated={f"{encodable(text)}]": "1"}), ("other",))


def _arguments(text: str) -> None:
    """Where a number has been hidden, as what is JSON and what is not."""
    for before in (f'{{"a": 1, "b": [{text}', json.dumps({"a": 1, "b": text})):
        guard._as_json(before, before.replace('"a": 1', '"a": [card 1]', 1))


def _form(text: str) -> None:
    """As a field, as its name, as the name of a file, and as the file."""
    named = text.replace("\r", " ").replace("\n", " ")
    name = f'Content-Disposition: form-data; name="{named}"'
    parts = (f"{name}\r\n\r\n{text}", f'Content-Disposition: form-data; name="file"; filename="{named}"\r\n\r\n{text}')
    body = "".join(f"--b\r\n{part}\r\n" for part in parts) + "--b--\r\n"

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body.encode(errors="replace")}

    async def send(message: object) -> None:
        raise AssertionError(message)

    headers = [(b"content-type", b"multipart/form-data; boundary=b")]
    bounds = Bounds(1 << 30, 60_000, intake.DEFAULT_LIMITS, None)
    asyncio.run(read_form(Exchange({"headers": headers}, receive, send, bounds)))


def _structure(text: str) -> None:
    """As JSON, as what a string holds, and as a conversation's; neither of so few values nor of more than it may have,
    which nothing would read to its end."""
    for body in (text, f'["{text}"]', f'{{"messages": [{text}'):
        encoded = body.encode(errors="replace")
        few = encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{")
        json_limits.check(encoded, intake.Limits(2 * len(encoded), max(1, min(few, len(encoded) - 1))))


def _json(text: str) -> None:
    """As it stands, where most texts are no JSON, and as a name and a value in an array that is."""
    quoted = json.dumps(text)
    strict_json.loads(f'[{{{quoted}: {quoted}}}, "\\u0041"]')
    strict_json.loads(text)


WHOLE: Mapping[str, Reader] = {
    "arguments of calls": whole(_arguments),
    "complexity": whole(complexity.classify),
    "diet": whole(compression.diet),
    "forms": whole(_form),
    "fields of requests": whole(lambda text: fields.parse(json.dumps({"messages": [text]}).encode())),
    "kinds of questions": whole(lambda text: kinds(looked_at([text]))),
    "permissions": whole(_permitted),
    "pieces for injections": whole(lambda text: list(injection.pieces(text))),
    "results of tools": whole(lambda text: prompt_builder.as_data("search", text)),
    "sizes of patterns": whole(constraint.pattern_size),
    "strict JSON": whole(_json),
    "the end of a text": whole(lambda text: window.shortened(text, 4_096)),
    "values of JSON": whole(_structure),
    "verdicts of a judge": whole(verdict),
    "protected": whole(lambda text: list(protected.pieces(text))),
}
STREAMED: Mapping[str, Reader] = {"screen": _screened}
PLAIN: Mapping[str, str] = {
    "strict JSON": '{"a": [1, true, null]}',
    "values of JSON": '{"a": [1, 2, 3]}',
    "sizes of patterns": "[a-z]{1,9}",
    "permissions": "tools",
}
