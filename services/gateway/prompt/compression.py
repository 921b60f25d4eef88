"""Prompt compression: text that costs tokens and says nothing is removed.

    spaces     runs of blanks, blanks at the ends of lines, more than one empty line
    phrases    wordy phrases become short ones
    repeats    a sentence that is in the same message already, word for word
    examples   equal examples, and more than a few of them: every answer keeps one

The result of a message does not depend on the messages around it, so the prompts of one conversation keep their common
prefix, and the engine's key-value cache stays valid. Protected text (`protected.py`) is never changed, and a sentence
or example that holds any of it is kept. Examples that stay are protected, too.

The table of phrases has, on the left, words with one blank between them in lower case; on the right, a replacement with
the same place in the sentence, empty where nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from services.gateway.prompt.protected import pieces

PHRASES: Mapping[str, str] = {
    # Longer conjunctions and prepositions.
    "in order to": "to",
    "so as to": "to",
    "due to the fact that": "because",
    "owing to the fact that": "because",
    "because of the fact that": "because",
    "in view of the fact that": "because",
    "despite the fact that": "although",
    "in spite of the fact that": "although",
    "in the event that": "if",
    "under the circumstances in which": "when",
    "at this point in time": "now",
    "at the present time": "now",
    "prior to": "before",
    "subsequent to": "after",
    "with regard to": "about",
    "with respect to": "about",
    "in relation to": "about",
    "for the purpose of": "for",
    "in the case of": "for",
    "a large number of": "many",
    "a majority of": "most",
    "each and every": "every",
    "first and foremost": "first",
    "in a situation in which": "when",
    "until such time as": "until",
    "whether or not": "whether",
    "has the ability to": "can",
    "have the ability to": "can",
    "is able to": "can",
    "are able to": "can",
    "it is possible that": "perhaps",
    # Instructions that only insist.
    "it is very important that you": "",
    "it is extremely important that you": "",
    "it is important that you": "",
    "it is important to note that": "",
    "it should be noted that": "",
    "please note that": "",
    "please be advised that": "",
    "please be aware that": "",
    "keep in mind that": "",
    "please keep in mind that": "",
    "please make sure that you": "",
    "please make sure to": "",
    "make sure that you": "",
    "make sure to": "",
    "please ensure that you": "",
    "be sure to": "",
    "you should always": "always",
    "you must always": "always",
    "you should never": "never",
    "you must never": "never",
    "i would like you to": "",
    "i want you to": "",
    "i would appreciate it if you could": "",
    "could you please": "",
    "would you please": "",
    "would you be so kind as to": "",
    "your task is to": "",
    "your job is to": "",
    "as an ai language model": "",
    "as a large language model": "",
    "take a deep breath and": "",
    "to the best of your ability": "",
    "please kindly": "please",
}
_MOST = 200  # protected pieces, and examples; a text with more is data
_LEAST_WORDS = 4  # of a sentence that is looked for again: shorter ones may be labels
_MARK, _CAPITAL = "\ue000", "\ue001"  # a protected piece; a capital to come. Nothing is done to a text that has one
_BLANKS = re.compile(r"(?<=\S)[ \t]{2,}(?=\S)")
_LINE_ENDS = re.compile(r"(?<![ \t])[ \t]+(?=\n)")
_EMPTY_LINES = re.compile(r"\n{3,}")
_WORDY = re.compile(
    r"\b(?:" + "|".join(re.escape(phrase).replace(r"\ ", r"[ ]") for phrase in sorted(PHRASES, key=len)[::-1]) + r")\b"
    r",?[ ]?",
    re.IGNORECASE,
)
_MOVED_UP = re.compile(f"{_CAPITAL}+(.?)", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+")
_EXAMPLE = re.compile(r"^(?:#+ *)?(?:example|sample|case)\b[^\n]{0,20}?:?[ ]*$|^(?:example|sample) *\d*:", re.I | re.M)
_ASKED = re.compile(r"^(?:input|question|q|user|text|review)[ ]?\d*:", re.I | re.M)
_ANSWERED = re.compile(
    r"^(?:output|answer|a|assistant|label|result|sentiment)[ ]?\d*:[ ]*(?P<answer>[^\n]*)", re.I | re.M
)


@dataclass(frozen=True, slots=True)
class CompressedText:
    """The compressed text, and the rules that found something."""

    text: str
    rules: tuple[str, ...] = ()


def diet(text: str, *, most_examples: int = 4) -> CompressedText:
    """Compress a prompt. `most_examples` of 0 leaves examples as they are."""
    if _MARK in text or _CAPITAL in text:
        return CompressedText(text)
    kept: list[str] = []
    prose = "".join(_masked(text, kept))
    if len(kept) > _MOST:
        return CompressedText(text)
    prose, fewer = _with_few_examples(prose, most_examples, kept)
    found = ["examples"] if fewer else []
    for rule, shorter in (("spaces", _without_spaces), ("phrases", _without_phrases), ("repeats", _without_repeats)):
        changed = shorter(prose)
        if changed != prose and changed.strip():
            prose = changed
            found.append(rule)
    return CompressedText(_unmasked(prose, kept), tuple(found)) if found else CompressedText(text)


def compressed(text: str, most: int, most_examples: int) -> CompressedText:
    """`diet` for a text of `most` characters; a longer one stays as it is."""
    return diet(text, most_examples=most_examples) if len(text) <= most else CompressedText(text)


def _masked(text: str, kept: list[str]) -> Iterator[str]:
    for piece, protected in pieces(text):
        if len(kept) > _MOST:
            return
        if protected:
            kept.append(piece)
        yield f"{_MARK}{len(kept) - 1}{_MARK}" if protected else piece


def _unmasked(prose: str, kept: Sequence[str]) -> str:
    parts = prose.split(_MARK)
    return "".join(kept[int(part)] if index % 2 else part for index, part in enumerate(parts))


def _without_spaces(prose: str) -> str:
    return _EMPTY_LINES.sub("\n\n", _LINE_ENDS.sub("", _BLANKS.sub(" ", prose))).strip()


def _without_phrases(prose: str) -> str:
    return _MOVED_UP.sub(lambda found: found[1].upper(), _WORDY.sub(_shorter, prose))


def _shorter(found: re.Match[str]) -> str:
    """A phrase's replacement, with the capital that it had; where there is none, for what follows it."""
    phrase = found[0].rstrip(", ")
    short = PHRASES[phrase.lower()]
    capital = _CAPITAL if phrase[0].isupper() else ""
    return f"{capital}{short}{found[0][len(phrase) :] if short else ''}"


def _without_repeats(prose: str) -> str:
    """Without the sentences that have been said; a line of nothing else goes with them."""
    seen: set[str] = set()
    lines = []
    for line in prose.split("\n"):
        sentences = _sentences(line)
        said = [sentence for sentence in sentences if not _is_repeat(sentence, seen)]
        left = "".join(said).rstrip() if len(said) < len(sentences) else line
        if left.strip() or not line.strip():
            lines.append(left)
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()


def _sentences(line: str) -> list[str]:
    """A line's sentences, each with the blanks after it."""
    begins = [0, *(found.end() for found in _SENTENCE_END.finditer(line))]
    ends = [*begins[1:], len(line)]
    return [line[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _is_repeat(sentence: str, seen: set[str]) -> bool:
    words = sentence.lower().split()  # with their signs: `x > 5` is not `x < 5`
    if _MARK in sentence or len(words) < _LEAST_WORDS or not sentence.rstrip().endswith((".", "!", "?")):
        return False
    said = " ".join(words)
    repeated = said in seen
    seen.add(said)
    return repeated


def _with_few_examples(prose: str, most: int, kept: list[str]) -> tuple[str, bool]:
    """The text with at most `most` examples, the first of each answer before others of the same, as one protected
    piece; and whether any was removed."""
    starts = [found.start() for found in (_EXAMPLE if len(_EXAMPLE.findall(prose)) > 1 else _ASKED).finditer(prose)]
    if not 1 < len(starts) <= _MOST:
        return prose, False
    ends = [*starts[1:], _end_of_last(prose, starts[-1])]
    examples = [prose[begin:end] for begin, end in zip(starts, ends, strict=True)]
    if not all(_ANSWERED.search(example) for example in examples):
        return prose, False  # questions without answers are no examples
    staying = _staying(examples, most) if most else set(range(len(examples)))
    left = "".join(example for index, example in enumerate(examples) if index in staying)
    kept.append(_unmasked(left.rstrip(), kept))
    fewer = len(staying) < len(examples)
    return f"{prose[: starts[0]]}{_MARK}{len(kept) - 1}{_MARK}{prose[ends[-1] :]}", fewer


def _staying(examples: Sequence[str], most: int) -> set[int]:
    """The examples that stay: an example with a protected piece stays."""
    first, others, texts = list[int](), list[int](), set[str]()
    answers = set[str]()
    for index, example in enumerate(examples):
        if _MARK in example:
            first.append(index)
            continue
        text = " ".join(example.lower().partition(":")[2].split())
        if text in texts:
            continue
        texts.add(text)
        found = _ANSWERED.search(example)
        answer = found["answer"].strip().casefold() if found else ""
        (others if answer in answers else first).append(index)
        answers.add(answer)
    return {*first, *others[: max(0, most - len(first))]}


def _end_of_last(prose: str, start: int) -> int:
    """The last example ends with the first empty line behind its answer."""
    found = _ANSWERED.search(prose, start)
    end = prose.find("\n\n", found.end() if found else start)
    return len(prose) if end < 0 else end
