"""When two questions are the same, for the cache and for whoever else keeps answers or shares them.

Questions that are the same have one key: a digest over *everything* in the normalized question. The digest is taken
over the protobuf encoding: every string in it carries its length and every field its number, so no two different
questions encode alike, and a field added to the contract (or one this version does not know yet) changes the key
without a line changed here. protobuf promises that encoding within one release only; should it ever change, answers are
missed, never mixed up (a test pins the key of a sample question, so that an upgrade cannot do it unnoticed).

Normalizing touches the text of messages only, and only where the meaning cannot change:
- Unicode NFC: the same characters, however they were typed;
- CRLF and CR become LF; white space at the end and blank lines at the start go;
- a text of one line also loses the white space before it.
Case stays (`us` is not `US`), and so does white space inside a text: it means something in code, tables and poems.
Where it does not, the embedding sees through both, and the semantic lookup finds the entry.
"""

from __future__ import annotations

import hashlib
import unicodedata

from hedgerow.cache.v1 import cache_pb2

_FORMAT = b"hedgerow.cache.key/1\0"  # raise it with every change to what is digested


def normalize(question: cache_pb2.Question) -> None:
    """Take from a question, in place, the differences that cannot change what it means."""
    for message in question.messages:
        message.content = normalized(message.content)
    for optional in ("sampling", "response_format"):
        if not getattr(question, optional).ByteSize():  # an empty message says no more than none
            question.ClearField(optional)


def digest(question: cache_pb2.Question) -> bytes:
    """The key of a normalized question, 32 bytes."""
    return hashlib.sha256(_FORMAT + question.SerializeToString(deterministic=True)).digest()


def normalized(text: str) -> str:
    """`text` without the differences that cannot change what it means."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").rstrip()
    lines = text.split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    return lines[0].lstrip() if len(lines) == 1 else "\n".join(lines)
