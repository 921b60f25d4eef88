"""A word that stands for what a caller sends, in every place where it can be sent, and where it is looked for."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from launcher.processes import free_port

MARK = "zqxmarkerxqz"
_TEXTS = {FieldDescriptor.TYPE_STRING: MARK, FieldDescriptor.TYPE_BYTES: MARK.encode()}
_DEEPEST = 6


def marked(descriptor: Descriptor, example: Message | None = None) -> Iterator[bytes]:
    """`example` with the word in each of its text and byte fields in turn, in all at once, and cut in the middle of it:
    so a field that comes later is covered too."""
    cls = GetMessageClass(descriptor)
    base = example or cls()
    for path in _paths(descriptor):
        message = cls.FromString(base.SerializeToString())
        _put(message, path)
        yield message.SerializeToString()
    everything = cls()
    for path in _paths(descriptor):
        _put(everything, path)
    whole = everything.SerializeToString()
    yield whole
    yield whole[: whole.rfind(MARK.encode()) + 4] if MARK.encode() in whole else MARK.encode()


def _paths(descriptor: Descriptor, above: tuple[FieldDescriptor, ...] = ()) -> Iterator[tuple[FieldDescriptor, ...]]:
    for field in descriptor.fields:
        if field.type in _TEXTS:
            yield (*above, field)
        elif field.message_type and len(above) < _DEEPEST:
            yield from _paths(field.message_type, (*above, field))


def _put(message: Message, path: tuple[FieldDescriptor, ...]) -> None:
    *above, last = path
    for field in above:
        held = getattr(message, field.name)
        if field.message_type.GetOptions().map_entry:
            held[_TEXTS[last.type]] = _TEXTS[last.type]
            return
        message = (held[0] if len(held) else held.add()) if field.is_repeated else held
        if not field.is_repeated:
            message.SetInParent()
    word = _TEXTS[last.type]
    if last.is_repeated:
        getattr(message, last.name).append(word)
    else:
        setattr(message, last.name, word)


_FORMS = (
    MARK.encode(),
    MARK.encode().hex().encode(),
    MARK.encode("utf-16-le"),
    # As base64 has it, at each of its three alignments, without the ends that depend on what stands beside.
    *(base64.b64encode(b"x" * shift + MARK.encode())[4:-4].lower() for shift in range(3)),
)


def places(contents: Mapping[str, bytes], words: Sequence[bytes] = _FORMS) -> dict[str, list[str]]:
    """Where any of the words is (in lower case), and in which lines."""
    return {name: found for name, content in contents.items() if (found := _lines(content, words))}


def _lines(content: bytes, words: Sequence[bytes]) -> list[str]:
    lines = content.lower().splitlines()
    return [line.decode(errors="replace")[:500] for line in lines if any(word in line for word in words)][:5]


def files(folder: Path) -> dict[str, bytes]:
    """Everything below the folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Provider:
    """A server that speaks OpenAI's chat completions, and puts the question into whatever it answers; of what kind the
    answer is, the question's first word says."""

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[str] = []

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": []})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        asked = (await request.json())["messages"][-1]["content"]
        self.asked.append(asked)
        kind, error = asked.split()[0], _error(asked)
        if kind.isdigit():
            return web.json_response(error, status=int(kind), reason=f"No {MARK}", headers={"retry-after": "1"})
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-request-id": MARK})
        await response.prepare(request)
        for event in _events(kind, asked, error):
            await response.write(f"data: {event}\n\n".encode())
        if kind == "broken" and request.transport:
            request.transport.abort()
        return response


KINDS = (
    *("400", "401", "404", "413", "422", "500", "503", "error", "late-error", "garbage", "late-garbage", "broken"),
    "429",  # the last: for a while nothing is asked after it
)


def _error(asked: str) -> dict[str, Any]:
    return {"error": {"message": f"cannot do {asked}", "param": asked, "type": asked, "code": asked}}


def _events(kind: str, asked: str, error: dict[str, Any]) -> list[str]:
    chunk = json.dumps({"choices": [{"index": 0, "delta": {"content": f"{asked} {MARK}"}, "finish_reason": None}]})
    end = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    others = {
        "error": [json.dumps(error)],
        "late-error": [chunk, json.dumps(error)],
        "garbage": [f"{{{asked}"],
        "late-garbage": [chunk, f"{{{asked}"],
        "broken": [chunk],
    }
    return others.get(kind, [chunk, end, "[DONE]"])


@asynccontextmanager
async def echoing_provider() -> AsyncIterator[Provider]:
    provider, app = Provider(), web.Application()
    app.router.add_post("/v1/chat/completions", provider.complete)
    app.router.add_get("/v1/models", provider.models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port := free_port()).start()
    provider.address = f"127.0.0.1:{port}"
    try:
        yield provider
    finally:
        await runner.cleanup()
