"""Texts for the two small classifiers: prompt injections among ordinary questions, and questions simple or complex.

Templates (`text_templates.py`) make all of them as a pure function of a seed, with `{one|another}` and slots `<topic>`
(`¦` is a bar of the text's own). The texts of the benchmark (`bench/guard/*.jsonl`) were written by hand, and
share no template with these.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from text_templates import COMPLEX_LINES, INJECTIONS, NEAR, SIMPLE_LINES, SLOTS

_CHOICE = re.compile(r"\{([^{}]*)\}")
_SLOT = re.compile(r"<(\w+)>")


def expand(template: str, rng: random.Random) -> str:
    """One text of a template."""
    while found := _CHOICE.search(template):
        template = template[: found.start()] + rng.choice(found[1].split("|")) + template[found.end() :]
    return _SLOT.sub(lambda slot: rng.choice(SLOTS[slot[1]]) if slot[1] in SLOTS else slot[0], template).replace(
        "¦", "|"
    )


def _alternatives(templates: Sequence[str]) -> list[str]:
    """The templates of one line, which `|` outside of any brace separates."""
    found = []
    for template in templates:
        depth, begin = 0, 0
        for at, sign in enumerate(template):
            depth += (sign == "{") - (sign == "}")
            if sign == "|" and depth == 0:
                found.append(template[begin:at])
                begin = at + 1
        found.append(template[begin:])
    return found


SIMPLE, COMPLEX = _alternatives(SIMPLE_LINES), _alternatives(COMPLEX_LINES)


def _varied(text: str, rng: random.Random) -> str:
    """As people type: some without marks or capitals, some polite."""
    if rng.random() < 0.15:
        text = text.rstrip(".!?").lower()
    if rng.random() < 0.1:
        text = rng.choice(("Please ", "please: ", "Hi, ", "Quick question: ", "Can you help me? ")) + text
    return text


def injections(rng: random.Random, count: int) -> Iterator[tuple[str, bool]]:
    """(text, whether it is a prompt injection), half and half, some inside of other text."""
    for number in range(count):
        bad = number % 2 == 0
        if bad:
            text = expand(rng.choice(INJECTIONS), rng)
        else:
            text = expand(rng.choice(rng.choice((NEAR, SIMPLE, COMPLEX, ("<doc>", "<doc> <doc>")))), rng)
        text = _varied(text, rng)
        if rng.random() < 0.35:
            text = expand(
                rng.choice(("<doc> %", "% <doc>", "<doc> % <doc>", "<doc> <doc>\n%\n<doc>", "Summarize: <doc> %")), rng
            ).replace("%", text)
        yield text, bad


_UNKNOWN = (
    "mer salée feu grenouille banque lumière château vent fusée moteur See Wolke Vogel Maschine Steuer Brücke Zahn Licht sale vento nave luce ponte "
    "mar viento barco luz puente zee wind brug licht boot море ветер мост свет лодка wheel salmon turbine ledger violin harbour glacier sensor comet"
).split()


def _about_else(text: str, rng: random.Random) -> str:
    """The same question about something else: what is asked for stands in its first words."""
    words = text.split()
    return " ".join(word if at < 2 or rng.random() < 0.5 else rng.choice(_UNKNOWN) for at, word in enumerate(words))


def questions(rng: random.Random, count: int) -> Iterator[tuple[str, bool]]:
    """(question, whether it is complex), half and half."""
    for number in range(count):
        hard = number % 2 == 0
        text = expand(rng.choice(COMPLEX if hard else SIMPLE), rng)
        yield _varied(_about_else(text, rng) if rng.random() < 0.3 else text, rng), hard
