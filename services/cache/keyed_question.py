"""How the cache knows a question: by its key, and by what a question that is merely alike has to share with it."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.cache.v1 import cache_pb2
from services.cache.semantic_match.traffic import Traffic
from services.runtime import question_key


@dataclass(frozen=True, slots=True)
class KeyedQuestion:
    """A question as the cache knows it."""

    tenant: str
    key: str  # of the exact entry: 64 hexadecimal digits
    partition: bytes  # digest of all but the last message's text: only within it may questions be alike
    asked: str  # the last message's text, normalized
    category: str = ""  # as the caller has it; empty: none
    exact_only: bool = False  # never compared with another question

    @property
    def traffic(self) -> Traffic:
        """The traffic that verdicts on its candidates count for."""
        return Traffic(self.tenant, self.category)


def keyed(question: cache_pb2.Question) -> KeyedQuestion:
    """The identity of a question, which has at least one message. The question stays as it is."""
    normal = cache_pb2.Question()
    normal.CopyFrom(question)
    question_key.normalize(normal)
    key = question_key.digest(normal)
    asked = normal.messages[-1].content
    normal.messages[-1].content = ""
    partition = question_key.digest(normal)
    return KeyedQuestion(normal.tenant, key.hex(), partition, asked, normal.category, normal.exact_only)
