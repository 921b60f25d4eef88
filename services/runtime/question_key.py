"""When two questions are the same, for the cache and all else that keeps or shares answers.

Questions that are the same have one key: a digest over *everything* in the normalized question. The digest is taken
over the protobuf encoding: every string in it carries its length and every field its number, so no two different
questions encode alike, and a field added to the contract (or one this version does not know yet) changes the key
without a line changed here. protobuf promises that encoding within one release only; should it ever change, answers are
missed, never mixed up (a test pins the key of a sample question, so that an upgrade cannot do it unnoticed).

Normalizing touches the text of messages only, and only where the meaning cannot change:
- Unicode NFC: the same characters, however they were typed; a text with more combining marks in a row than any language
  has stays as it is;
- CRLF and CR become LF; white space at the end and blank lines at the start go;
- a text of one line also loses the white space before it;
- a line of prose has one blank where it has more white space. Prose is one line alone of at most 2,048 characters
  that has no quotation mark, backtick, bracket of code, bar, slash or tab, and does not speak of blanks, characters or
  the like.
Else white space inside a text stays: it means something in code, tables and poems. Where it does not, the embedding
sees through it, and the semantic lookup finds the entry. Case stays (`us` is not `US`), unless a question says
`ignore_case`: then that of the user's lines of prose does not count for the key.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.runtime.letters import MARKS

_FORMAT = b"hedgerow.cache.key/1\0"  # raise it with every change to what is digested
_FORMAT_WITHOUT_CASE = b"hedgerow.cache.key/2\0"  # likewise, of questions that say `ignore_case`
_LONGEST_LINE = 2_048  # characters of prose: what is longer is no question typed by hand, and takes long to look at
_RUN = re.compile(r"\s+")
_MANY_MARKS = re.compile(f"[{MARKS}]{{31}}")
_MAYBE_MARKS = re.compile("[\u0300-\U0010ffff]{31}")  # none of them is below; this is found much sooner
_SIGN = re.compile(  # of a text that may mean what it spells; an apostrophe within a word is no quotation mark
    r"""["\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a\u300c-\u300f`|/\\^*=<>\[\]{}\t]|['\u2018\u2019](?:(?!\w)|(?<!\w.))"""
)
_SPEAKS_OF_IT = re.compile(
    r"\b(?:(?:white|back)?spac|blanks?\b|gaps?\b|indent|align|columns?\b|tabs?\b|cases?\b|upper|lower"
    r"|charact|letters?\b|length\b|strings?\b|bytes?\b|counts?\b|repeat|exactly\b"
    r"|verbatim|echo\b|encod|base64|hash|sha\b|md5"
    r"|leerz|zeichen|espac|espa\u00e7|caract|spazi|caratter|spati)"
    r"|\u043f\u0440\u043e\u0431\u0435\u043b|\u0441\u0438\u043c\u0432\u043e\u043b"  # Russian: space, character
    r"|空格|空白|字符|文字|スペース|공백"
)


def normalize(question: cache_pb2.Question) -> None:
    """Remove, in place, the differences of a question that cannot change its meaning."""
    for message in question.messages:
        message.content = normalized(message.content)
    for optional in ("sampling", "response_format"):
        if not getattr(question, optional).ByteSize():  # an empty message says no more than none
            question.ClearField(optional)


def digest(question: cache_pb2.Question) -> bytes:
    """The key of a normalized question, 32 bytes."""
    form = _FORMAT
    if question.ignore_case:
        form, question = _FORMAT_WITHOUT_CASE, _without_case(question)
    return hashlib.sha256(form + question.SerializeToString(deterministic=True)).digest()


def normalized(text: str) -> str:
    """`text` without differences that cannot change its meaning."""
    text = composed(text).replace("\r\n", "\n").replace("\r", "\n").rstrip()
    blank = len(text) - len(text.lstrip())
    text = text[text.rfind("\n", 0, blank) + 1 :]
    if "\n" in text:
        return text
    line = text.lstrip()
    return _RUN.sub(" ", line) if is_prose(line) else line


def composed(text: str) -> str:
    """`text` in Unicode's form NFC, or as it is where it has more than 30 combining marks in a row. No language has
    that many, and to put n of them in their order takes n² steps.
    Source: the stream-safe text format of https://www.unicode.org/reports/tr15/"""
    if text.isascii() or (_MAYBE_MARKS.search(text) and _MANY_MARKS.search(text)):
        return text
    return unicodedata.normalize("NFC", text)


def is_prose(text: str) -> bool:
    """Whether neither runs of white space nor, where a question says so, case mean anything in a text."""
    if len(text) > _LONGEST_LINE or len(text.splitlines()) != 1:
        return False
    return not (_SIGN.search(text) or _SPEAKS_OF_IT.search(text.lower()))


def _without_case(question: cache_pb2.Question) -> cache_pb2.Question:
    folded = cache_pb2.Question()
    folded.CopyFrom(question)
    for message in folded.messages:
        if message.role == chat_pb2.ROLE_USER and is_prose(message.content):
            message.content = composed(message.content.lower())  # `casefold` makes Masse (mass) of Maße (measures)
    return folded
