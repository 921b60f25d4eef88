"""Sentences of a text that is whole: what `SentenceSplitter` finds, one character after the other."""

from __future__ import annotations

from hedgerow._sentences import _BEFORE_NAMES, _BEFORE_NUMBERS, _INITIAL, _LIST_MARKER, _LONGEST_WORD

_MARKS, _WIDE = ".!?…", "。！？।॥؟۔"
_CLOSERS, _WIDE_CLOSERS = "\"'”’»)]", "\"'”’」』）"


def sentences(text: str) -> list[str]:
    ends = _ends(text)
    whole = [text[begin:end].strip() for begin, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    return [sentence for sentence in whole if sentence]


def _ends(text: str) -> list[int]:
    """Where each sentence but the last begins after another."""
    ends, at = list[int](), 0
    while at < len(text):
        sign, begin, mark = text[at], ends[-1] if ends else 0, at
        at += 1
        if sign == "\n":
            ends.append(at)
        elif sign in _WIDE:
            at = _behind(text, at, _WIDE_CLOSERS)
            ends.append(at)
        elif sign in _MARKS:
            closed = _behind(text, _behind(text, at, _MARKS), _CLOSERS)
            point, at = sign == "." and closed == at, closed
            while at < len(text) and text[at].isspace() and text[at] != "\n":
                at += 1
            if at == len(text):
                break
            if text[at] == "\n":
                at += 1
                ends.append(at)
            elif at > closed and not _goes_on(text[begin:mark], point, text[at]):
                ends.append(at)
    return ends


def _behind(text: str, at: int, signs: str) -> int:
    while at < len(text) and text[at] in signs:
        at += 1
    return at


def _goes_on(sentence: str, point: bool, following: str) -> bool:
    if following.islower() or not point:
        return following.islower()
    words = sentence[-_LONGEST_WORD:].split()
    word = words[-1].lstrip("\"'“‘(«[") if words else ""
    return (
        word.lower() in _BEFORE_NAMES
        or (word.lower() in _BEFORE_NUMBERS and following.isdigit())
        or bool(_INITIAL.match(word))
        or bool(_LIST_MARKER.fullmatch(sentence))
    )
