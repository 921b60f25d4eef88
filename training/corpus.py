"""The closed world the demo models know: questions, answers and spoken sentences, all generated here.

Everything is drawn from `corpus_tables.py` by a seeded `random.Random`, so a corpus is a pure function of
its seed. `dialogues()` feeds the language models, `utterances()` the speech model; both share the same
questions, so a spoken question can be transcribed and then answered.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

import corpus_tables as tables


@dataclass(frozen=True)
class Turn:
    """One question with its answer, and how the question may be worded."""

    wordings: tuple[str, ...]
    answer: str
    spoken: bool = True  # whether the wordings can be read aloud as they stand

    def question(self, rng: random.Random) -> str:
        return rng.choice(self.wordings)


def a(word: str) -> str:
    """The word with its indefinite article."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def capital(rng: random.Random) -> Turn:
    country, city = rng.choice(sorted(tables.CAPITALS.items()))
    return Turn(
        (
            f"What is the capital of {country}?",
            f"Tell me the capital of {country}.",
            f"Which city is the capital of {country}?",
            f"What's {country}'s capital?",
            f"Name the capital city of {country}.",
        ),
        f"The capital of {country} is {city}.",
    )


def country_of(rng: random.Random) -> Turn:
    country, city = rng.choice(sorted(tables.CAPITALS.items()))
    return Turn(
        (f"{city} is the capital of which country?", f"Which country has {city} as its capital?"),
        f"{city} is the capital of {country}.",
    )


def continent(rng: random.Random) -> Turn:
    country = rng.choice(sorted(tables.CONTINENT_OF))
    return Turn(
        (f"Which continent is {country} in?", f"On which continent is {country}?"),
        f"{country} is in {tables.CONTINENT_OF[country]}.",
    )


def opposite(rng: random.Random) -> Turn:
    word, other = rng.choice(sorted(tables.OPPOSITES.items()))
    return Turn(
        (f"What is the opposite of {word}?", f"Give me the opposite of {word}.", f"What's the opposite of {word}?"),
        f"The opposite of {word} is {other}.",
    )


def arithmetic(rng: random.Random) -> Turn:
    kind = rng.choice(("plus", "minus", "times"))
    m, n = rng.randint(0, 20), rng.randint(0, 20)
    if kind == "minus":
        m, n = max(m, n), min(m, n)
    if kind == "times":
        m, n = m % 13, n % 13
    value = {"plus": m + n, "minus": m - n, "times": m * n}[kind]
    x, y = (tables.NUMBER_WORDS[m], tables.NUMBER_WORDS[n]) if rng.random() < 0.5 else (str(m), str(n))
    return Turn(
        (f"What is {x} {kind} {y}?", f"How much is {x} {kind} {y}?", f"Compute {x} {kind} {y}."),
        f"{m} {kind} {n} is {value}.",
    )


def time_unit(rng: random.Random) -> Turn:
    (many, few), factor = rng.choice(sorted(tables.TIME_UNITS.items()))
    n = rng.randint(2, 20)
    shown = tables.NUMBER_WORDS[n] if rng.random() < 0.5 else str(n)
    return Turn(
        (f"How many {few} are in {shown} {many}?", f"Convert {shown} {many} to {few}."),
        f"There are {n * factor} {few} in {n} {many}.",
    )


def glossary(rng: random.Random) -> Turn:
    term, meaning = rng.choice(sorted(tables.GLOSSARY.items()))
    return Turn((f"What is {term}?", f"Explain {term}.", f"Define {term}.", f"What does {term} mean?"), meaning)


def count(rng: random.Random) -> Turn:
    start = rng.randint(1, 10)
    stop = start + rng.randint(3, 30)
    return Turn((f"Count from {start} to {stop}.",), " ".join(map(str, range(start, stop + 1))) + ".")


def repeat(rng: random.Random) -> Turn:
    words = " ".join(rng.sample(tables.FILLER + tables.ANIMALS + tables.COLORS + tables.THINGS, rng.randint(3, 7)))
    return Turn((f"Repeat after me: {words}.", f"Say this back: {words}."), f"{words[0].upper()}{words[1:]}.")


def spell(rng: random.Random) -> Turn:
    word = rng.choice(tables.FILLER + tables.ANIMALS + tables.COLORS + tables.SHAPES + tables.THINGS)
    return Turn((f"Spell the word {word}.", f"How do you spell {word}?"), "-".join(word.upper()) + ".")


def as_json(rng: random.Random) -> Turn:
    country = rng.choice(sorted(tables.CONTINENT_OF))
    record = {"country": country, "capital": tables.CAPITALS[country], "continent": tables.CONTINENT_OF[country]}
    return Turn(
        (f"Describe {country} as JSON.", f"Give me a JSON object about {country}."), json.dumps(record), spoken=False
    )


def story(rng: random.Random) -> Turn:
    animal, place, thing, trait = (
        rng.choice(group) for group in (tables.ANIMALS, tables.PLACES, tables.THINGS, tables.TRAITS)
    )
    friend = rng.choice([other for other in tables.ANIMALS if other != animal])
    return Turn(
        (
            f"Tell me a story about {a(animal)}.",
            f"Write a story about {a(animal)}.",
            f"Tell me a long story about {a(animal)}.",
        ),
        f"Once upon a time {a(trait)} {animal} lived near the {place}. Every morning the {animal} walked along the "
        f"{place} and looked for something new. One day the {animal} found an old {thing} under a tree. "
        f'"Who could have lost this {thing}?" asked the {animal}. {a(friend).capitalize()} heard the question and came closer. '
        f'"That {thing} is mine," said the {friend}, "but I am too tired to carry it home." So the {animal} picked up '
        f"the {thing} and carried it all the way across the {place}. The {friend} was so grateful that the two of them "
        f"shared supper and became friends. From that day on the {trait} {animal} was never alone, and the {thing} "
        f"hung above the door for everyone to see. The end.",
    )


def grounded(rng: random.Random) -> Turn:
    """A question whose answer stands in the context that comes with it."""
    number, day = (
        rng.randint(1000, 9999),
        rng.choice("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()),
    )
    city, sky, warm = rng.choice(tables.CITIES), rng.choice(tables.WEATHER), rng.randint(-10, 38)
    thing, color, place = rng.choice(tables.THINGS), rng.choice(tables.COLORS), rng.choice(tables.PLACES)
    facts = {
        f"When does order {number} ship?": (f"Order {number} ships on {day}.",) * 2,
        f"What is the weather in {city}?": (f"The weather in {city} is {sky} with {warm} degrees.",) * 2,
        f"What color is the {thing}?": (
            f"The {thing} is {color} and stands in the {place}.",
            f"The {thing} is {color}.",
        ),
        f"Where is the {thing}?": (
            f"The {thing} is {color} and stands in the {place}.",
            f"The {thing} is in the {place}.",
        ),
    }
    question = rng.choice(sorted(facts))
    fact, answer = facts[question]
    others = [other for other, _ in facts.values() if other != fact]
    lines = rng.sample(sorted(set(others)), rng.randint(0, len(set(others)))) + [fact]
    rng.shuffle(lines)
    context = "\n".join(f"- {line}" for line in lines)
    return Turn((f"Context:\n{context}\n\nQuestion: {question}",), answer, spoken=False)


def picture(rng: random.Random) -> Turn:
    """A question about labels that an image classifier has put into the context."""
    color, shape = rng.choice(tables.COLORS), rng.choice(tables.SHAPES)
    score = rng.randint(50, 100) / 100
    wordings = tuple(
        f"Context:\n- image: {color} {shape} ({score:.2f})\n\nQuestion: {question}"
        for question in ("What is in the image?", "What do you see?", "Describe the picture.", "What shape is it?")
    )
    return Turn(wordings, f"The image shows {a(color)} {shape}.", spoken=False)


def visual_question(rng: random.Random) -> Turn:
    """The spoken half of `picture`: asked without its context, it cannot be answered."""
    return Turn(
        ("What is in the image?", "What do you see?", "Describe the picture.", "What shape is it?"),
        "Please send an image with the question.",
    )


def small_talk(rng: random.Random) -> Turn:
    return rng.choice(
        (
            Turn(("Hello.", "Hi.", "Hello, how are you?", "Good morning."), "Hello! How can I help you?"),
            Turn(
                ("Who are you?", "What are you?", "What is your name?"), "I am a small demo model that runs anywhere."
            ),
            Turn(("Thank you.", "Thanks a lot.", "Thanks."), "You are welcome."),
            Turn(("What can you do?", "What do you know?", "Help."), tables.FALLBACK),
        )
    )


def unknown(rng: random.Random) -> Turn:
    words = rng.sample(tables.FILLER + tables.ANIMALS + tables.PLACES + tables.THINGS, 3)
    frame = rng.choice(
        (
            "Why does the {0} need the {1} and the {2}?",
            "How do I build my {0} for the {1}?",
            "Who invented the {0}?",
            "Write code that sorts a list of {0} by {1}.",
            "Should I buy the {0} or the {1}?",
            "Compare the {0} with the {1}.",
        )
    )
    return Turn((frame.format(*words),), tables.FALLBACK)


TOPICS = {
    capital: 10,
    country_of: 4,
    continent: 4,
    opposite: 5,
    arithmetic: 14,
    time_unit: 8,
    glossary: 8,
    count: 4,
    repeat: 6,
    spell: 5,
    as_json: 5,
    story: 6,
    grounded: 10,
    picture: 5,
    visual_question: 1,
    small_talk: 3,
    unknown: 5,
}


def draw(rng: random.Random) -> Turn:
    (topic,) = rng.choices(tuple(TOPICS), weights=tuple(TOPICS.values()))
    return topic(rng)


def dialogues(seed: int) -> Iterator[list[dict[str, str]]]:
    """Endless chats of one to three turns, as OpenAI-style message lists."""
    rng = random.Random(seed)
    while True:
        messages = [{"role": "system", "content": tables.SYSTEM_PROMPT}] if rng.random() < 0.5 else []
        for _ in range(rng.choices((1, 2, 3), weights=(7, 2, 1))[0]):
            turn = draw(rng)
            messages += [{"role": "user", "content": turn.question(rng)}, {"role": "assistant", "content": turn.answer}]
        yield messages


def utterances(seed: int) -> Iterator[str]:
    """Endless sentences to read aloud: questions, answers and word salads over the same vocabulary."""
    rng = random.Random(seed)
    words = sorted(
        {
            word
            for turn in (draw(random.Random(i)) for i in range(4000))
            if turn.spoken
            for word in turn.answer.replace('"', "").split()
            if word.isalpha()
        }
    )
    while True:
        roll = rng.random()
        turn = draw(rng)
        if not turn.spoken:
            continue
        if roll < 0.6:
            text = turn.question(rng)
        elif roll < 0.8:
            text = rng.choice([s.strip() for s in turn.answer.replace('"', "").split(". ") if s.strip()])
            text = text if text[-1] in ".?!" else text + "."
        else:
            salad = rng.choices(words, k=rng.randint(2, 9))
            text = " ".join(salad)
            text = text[0].upper() + text[1:] + "."
        if len(text) <= 140:
            yield text
