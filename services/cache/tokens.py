"""The part of a text that the model reads, and the part that it does not see.

Its tokenizer knows 30,522 pieces of words. A word of more than 100 characters, and one with a character that no piece
has, becomes `[UNK]`; accents go, and so do control and invisible characters. Texts that differ in nothing else are the
same to the model: `align <120 letters> with <120 letters>` has a similarity of 1.0 to any other two. So what the pieces
of a text do not spell must be the same in both, letter by letter but for case.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Encoding

_LONGEST_WORD = 100  # in characters; a longer one is unknown
CHARACTERS_PER_TOKEN = 16  # far more than any language needs; longer texts are not looked at
_INSIDE = "##"  # marks a piece that goes on with a word


def as_read(text: str) -> str:
    """A text as the model is given it: case and white space mean nothing to it."""
    return " ".join(text.lower().split())


class Tokens:
    """The model's own tokenizer, without its padding, and refusing where it would truncate."""

    def __init__(self, file: Path, max_tokens: int):
        """`file` is the model's `tokenizer.json`."""
        from tokenizers import Tokenizer as Model  # only where a model reads

        self._max_tokens, self.max_characters = max_tokens, max_tokens * CHARACTERS_PER_TOKEN
        self._model = Model.from_file(str(file))
        self._model.no_padding()
        self._model.no_truncation()

    def ids(self, text: str) -> list[int] | None:
        """The pieces of a text, None for one that is too long."""
        ids: list[int] = self._model.encode(text).ids
        return ids if len(ids) <= self._max_tokens else None

    def length(self, text: str) -> int:
        """How many pieces a text has, without the two that mark its ends."""
        return len(self._model.encode(text, add_special_tokens=False).ids)

    def unseen(self, asked: str, stored: str) -> str:
        """How two texts differ in what the model does not see, for people; empty when they do not."""
        asked, stored = as_read(asked), as_read(stored)
        if asked == stored or (_is_plain(asked) and _is_plain(stored)):
            return ""
        a, b = self._model.encode(asked), self._model.encode(stored)
        same = a.ids == b.ids and asked.replace(" ", "") != stored.replace(" ", "")
        return "words the model does not know differ" if same or _hidden(asked, a) != _hidden(stored, b) else ""


def _is_plain(text: str) -> bool:
    """Whether the model knows every character and no word is too long: then its pieces spell the text."""
    return text.isascii() and text.isprintable() and max(map(len, text.split(" "))) <= _LONGEST_WORD


def _hidden(text: str, encoding: Encoding) -> list[str]:
    """The parts of a text that its pieces do not spell, in order."""
    hidden, end = [], 0
    for piece, (start, stop) in zip(encoding.tokens[1:-1], encoding.offsets[1:-1], strict=True):
        hidden += [text[end:start].strip(), "" if text[start:stop] == piece.removeprefix(_INSIDE) else text[start:stop]]
        end = stop
    return [part for part in (*hidden, text[end:].strip()) if part]
