"""Every function that reads a text of a caller's or a model's choice, by name: it is given the text in pieces.

A function that reads such texts belongs here: `test_linear` feeds each with texts that make a careless one slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from hedgerow._sentences import SentenceSplitter
from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache.collections import chunking, reading
from services.cache.collections.documents import Document, Format
from services.cache.semantic_match import facts
from services.runtime import question_key
from services.runtime.security import secrets
from tests.unit.linear import of_answers, of_gateway, of_models
from tests.unit.linear.reader import Reader, whole


def _sentences(pieces: Sequence[str]) -> None:
    splitter = SentenceSplitter()
    for piece in pieces:
        splitter.feed(piece)
    splitter.flush()


def _digest(text: str) -> None:
    message = chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text)
    question = cache_pb2.Question(tenant="acme", messages=[message], ignore_case=True)
    question_key.normalize(question)
    question_key.digest(question)


def _snippets(text: str) -> None:
    document = Document("notes.md", "", text, Format.MARKDOWN)
    deque(chunking.cut(document, lambda slice_: len(slice_.split()), 32), maxlen=0)


WHOLE: Mapping[str, Reader] = {
    "question_key": whole(_digest),
    "documents": whole(_snippets),
    "words of a search": whole(reading._quoted),
    "facts": whole(facts._read),
    "lines of the log": whole(lambda text: secrets.without_passwords(f"x:/ {text}@?b")),
    **of_answers.WHOLE,
    **of_gateway.WHOLE,
    **of_models.WHOLE,
}
# These are given a text in pieces of 1, 4 and 64 characters, too.
STREAMED: Mapping[str, Reader] = {"sentences": _sentences, **of_gateway.STREAMED, **of_models.STREAMED}
GATHERED: Mapping[str, Reader] = {**of_answers.GATHERED, **of_models.GATHERED}
READERS: Mapping[str, Reader] = {**WHOLE, **STREAMED, **GATHERED}
# A text that a reader takes as it should be, where that is more than a few sentences.
PLAIN: Mapping[str, str] = {**of_gateway.PLAIN, **of_models.PLAIN}
