"""The words of all scripts: their characters, for regular expressions, and what stands between them.

Python's `\\w` lacks the marks by which many scripts write vowels and tones: दिल (heart) and दाल (lentils) are the same
letters without them.
"""

from __future__ import annotations

import unicodedata
from itertools import chain, groupby

_BLOCKS = range(0x300, 0x3100), range(0xA600, 0xAC00), range(0xFB00, 0xFE30)  # no ideograph and no Hangul is a mark


def _first_plane() -> str:
    """The marks of Unicode's first plane, as ranges."""
    codes = (code for code in chain(*_BLOCKS) if unicodedata.category(chr(code)).startswith("M"))
    runs = (list(run) for _, run in groupby(enumerate(codes), lambda each: each[1] - each[0]))
    return "".join(f"{chr(run[0][1])}-{chr(run[-1][1])}" for run in runs)


UNSPACED = frozenset(("zh", "yue", "ja", "th", "lo", "my"))  # languages without spaces between words, ISO 639
# For a class of characters. The other planes' marks are in ranges that have other characters of words too: a search for
# many ranges takes long there.
MARKS = _first_plane()
MARKS += "\U00010100-\U00011fff\U00016a00-\U00016fff\U0001bc00-\U0001bcff\U0001d100-\U0001d2ff\U0001e000-\U0001efff"
