"""What a model is asked that judges an answer, and what it says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hedgerow.chat.v1 import chat_pb2
from services.runtime.errors import shorten

_JUDGE = "Is your last answer right, complete and to the point? Say yes or no, and nothing else."
_YES = re.compile(r"\W*yes\b", re.IGNORECASE)
_NO = re.compile(r"\W*no\b", re.IGNORECASE)


def to_judge(conversation: Iterable[chat_pb2.Message], answer: str) -> Iterator[chat_pb2.Message]:
    """What a judge reads: as far as it is the conversation, the engine need not read it again to answer by itself."""
    yield from conversation
    yield chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, content=answer)
    yield chat_pb2.Message(role=chat_pb2.ROLE_USER, content=_JUDGE)


def verdict(said: str) -> bool | None:
    """What a judge says of an answer: whether it is right; None where that is not clear."""
    return True if _YES.match(said) else False if _NO.match(said) else None


def objection(said: str) -> str:
    """Why a judge is against an answer; empty where it is for it."""
    return "" if _YES.match(said) else f"the judge says {shorten(said.strip(), 20)!r}"
