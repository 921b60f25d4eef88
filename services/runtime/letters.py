"""The words of all scripts: their characters, for regular expressions, what stands between them, and what no reader
sees.

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


# First and last code points of invisible characters (Unicode's property Default_Ignorable_Code_Point), such as joiners,
# marks of direction, variation selectors and tags.
INVISIBLE = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
TAGS = 0xE0000  # + the code of a character of ASCII: an invisible copy of it, which models read
UNSPACED = frozenset(("zh", "yue", "ja", "th", "lo", "my"))  # languages without spaces between words, ISO 639
# For a class of characters. The other planes' marks are in ranges that have other characters of words too: a search for
# many ranges takes long there.
MARKS = _first_plane()
MARKS += "\U00010100-\U00011fff\U00016a00-\U00016fff\U0001bc00-\U0001bcff\U0001d100-\U0001d2ff\U0001e000-\U0001efff"
