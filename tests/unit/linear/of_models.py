"""The model services' readers of models' and providers' texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from services.audio.sentences import TranscriptSentences
from services.audio.speech import Word
from services.llm import relayed_usage, untranslated
from services.llm.dialects import documents, events
from services.llm.engine import Message
from services.llm.providers import context, meanings, openai
from services.llm.providers.transport.reply import EventParser
from services.llm.vllm.forced_calls import ListedCalls
from services.llm.vllm.text_tools import as_text
from tests.unit.linear.reader import Reader, whole


def _calls(pieces: Sequence[str]) -> None:
    calls = ListedCalls()
    for piece in pieces:
        calls.read(piece)


def _events(pieces: Sequence[str]) -> None:
    parser = EventParser(1 << 20)
    for piece in pieces:
        parser.feed(piece.encode(errors="replace"))


def _segments(pieces: Sequence[str]) -> None:
    sentences, found = TranscriptSentences(), list[object]()
    for at, piece in enumerate(pieces):
        found += sentences.push([Word(piece, float(at), at + 0.5)])
    assert [*found, *sentences.end()]


def _omitted(text: str) -> None:
    untranslated._TUNES.fullmatch(text)
    untranslated._INDEX.sub("[]", text)


WHOLE: Mapping[str, Reader] = {
    "context that is too long": whole(lambda text: context.refused({}, text, 400, "")),
    "refusals of providers": whole(lambda text: meanings.meaning(400, {}, text)),
    "addresses of files": whole(documents._DATA.match),
    "fields left out": whole(_omitted),
    "names of models": whole(openai._REASONS.match),
    "events of providers": whole(lambda text: events.parsed(json.dumps(text))),
    "usage that is relayed": whole(relayed_usage.without_cache),
}
STREAMED: Mapping[str, Reader] = {
    "calls in a list": _calls,
    "segments of recordings": _segments,
    "server-sent events": _events,
}
GATHERED: Mapping[str, Reader] = {
    "turns of a user": lambda pieces: as_text(tuple(Message("user", each) for each in pieces), (), takes_system=True)
}
PLAIN: Mapping[str, str] = {
    "calls in a list": '[{"name": "search", "parameters": {"q": "hedges"}}]',
    "server-sent events": 'data: {"text": "A hedge."}\n\n',
    "usage that is relayed": '{"usage": {"prompt_tokens": 1}}',
}
