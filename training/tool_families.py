"""The tools of `tool_corpus`: families of tools that answer a question of the closed world, and tools for nothing here."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import corpus
import corpus_tables as tables

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}


@dataclass(frozen=True)
class Asked:
    """A question, the arguments of its tool call, and the sentence that states the result."""

    question: str
    arguments: dict[str, Any]
    said: str  # with a place for the result
    result: str
    plain: str  # the answer where no tool fits
    short: str = ""  # the question's end, for two in one: "in Oslo"


@dataclass(frozen=True)
class Family:
    """Tools that do one thing."""

    name: str
    descriptions: tuple[str, ...]
    arguments: Mapping[str, dict[str, Any]]
    ask: Callable[[random.Random], Asked]
    topic: Callable[[random.Random], corpus.Turn] | None = None  # that it takes from the model
    result_keys: tuple[str, ...] = ("result",)
    several: str = ""  # asks for two things: with two places


def _read(topic: Callable[[random.Random], corpus.Turn], pattern: str, rng: random.Random) -> tuple[str, Any, str]:
    """A question of the closed world with what its answer, which is regular, says of it."""
    turn = topic(rng)
    found = re.fullmatch(pattern, turn.answer)
    assert found
    return turn.question(rng), found, turn.answer


def weather(rng: random.Random) -> Asked:
    city, sky = rng.choice(tables.CITIES), rng.choice(tables.WEATHER)
    question = rng.choice(
        (
            f"What is the weather in {city}?",
            f"What's the weather like in {city}?",
            f"How is the weather in {city}?",
            f"Tell me the weather in {city}.",
            f"Is it {rng.choice(tables.WEATHER)} in {city}?",
        )
    )
    result = sky if rng.random() < 0.5 else f"{sky} with {rng.randint(-10, 38)} degrees"
    said = f"The weather in {city} is {{}}."
    return Asked(question, {"city": city}, said, result, tables.FALLBACK, city)


def clock(rng: random.Random) -> Asked:
    city, hour = rng.choice(tables.CITIES), f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
    question = rng.choice(
        (f"What time is it in {city}?", f"What's the time in {city}?", f"Tell me the time in {city}.")
    )
    return Asked(question, {"city": city}, f"It is {{}} in {city}.", hour, tables.FALLBACK, city)


def capital(rng: random.Random) -> Asked:
    question, found, answer = _read(corpus.capital, r"The capital of (.+) is (.+)\.", rng)
    city = found[2] if rng.random() < 0.7 else rng.choice(tables.CITIES)  # a tool is believed
    return Asked(question, {"country": found[1]}, f"The capital of {found[1]} is {{}}.", city, answer, found[1])


def sum_(rng: random.Random) -> Asked:
    if rng.random() < 0.5:
        question, found, answer = _read(corpus.arithmetic, r"(\d+) (plus|minus|times) (\d+) is (\d+)\.", rng)
        m, kind, n, value = int(found[1]), found[2], int(found[3]), found[4]
    else:
        kind, m, n = rng.choice(("plus", "minus", "times")), rng.randint(0, 99), rng.randint(0, 99)
        value = str({"plus": m + n, "minus": m - n, "times": m * n}[kind])
        question, answer = rng.choice((f"What is {m} {kind} {n}?", f"How much is {m} {kind} {n}?")), ""
        if rng.random() < 0.3:
            question = f"Compute {m} {kind} {n}."
    return Asked(question, {"a": m, "operation": kind, "b": n}, f"{m} {kind} {n} is {{}}.", value, answer)


def convert(rng: random.Random) -> Asked:
    question, found, answer = _read(corpus.time_unit, r"There are (\d+) (\w+) in (\d+) (\w+)\.", rng)
    arguments = {"amount": int(found[3]), "from": found[4], "to": found[2]}
    return Asked(question, arguments, f"There are {{}} {found[2]} in {found[3]} {found[4]}.", found[1], answer)


def opposite(rng: random.Random) -> Asked:
    question, found, answer = _read(corpus.opposite, r"The opposite of (.+) is (.+)\.", rng)
    return Asked(question, {"word": found[1]}, f"The opposite of {found[1]} is {{}}.", found[2], answer, found[1])


def define(rng: random.Random) -> Asked:
    term, meaning = rng.choice(sorted(tables.GLOSSARY.items()))
    question = corpus.Turn((f"What is {term}?", f"Explain {term}.", f"Define {term}."), meaning).question(rng)
    return Asked(question, {"term": re.sub(r"^an? ", "", term)}, "{}", meaning, meaning)


FAMILIES: Mapping[str, Family] = {
    "weather": Family(
        "get_weather",
        ("Tells the weather.", "The weather in a city.", "Get the current weather."),
        {"city": STRING},
        weather,
        result_keys=("weather", "result"),
        several="What is the weather in {} and in {}?",
    ),
    "clock": Family(
        "clock",
        ("Tells the time.", "The time in a city.", "Get the current time."),
        {"city": STRING},
        clock,
        result_keys=("time", "result"),
        several="What time is it in {} and in {}?",
    ),
    "capital": Family(
        "capital_of",
        ("The capital of a country.", "Finds the capital of a country.", "Tells the capital."),
        {"country": STRING},
        capital,
        corpus.capital,
        result_keys=("capital", "result"),
        several="What is the capital of {} and of {}?",
    ),
    "calculate": Family(
        "calculate",
        ("Calculates.", "Computes two numbers.", "Does arithmetic."),
        {"a": INTEGER, "operation": {"type": "string", "enum": ["plus", "minus", "times"]}, "b": INTEGER},
        sum_,
        corpus.arithmetic,
    ),
    "convert": Family(
        "convert_time",
        ("Converts units of time.", "Converts time.", "From one unit of time to another."),
        {"amount": INTEGER, "from": STRING, "to": STRING},
        convert,
        corpus.time_unit,
    ),
    "opposite": Family(
        "opposite_of",
        ("The opposite of a word.", "Finds a word's opposite.", "Tells the opposite."),
        {"word": STRING},
        opposite,
        corpus.opposite,
        result_keys=("opposite", "result"),
        several="What is the opposite of {} and of {}?",
    ),
    "define": Family(
        "define",
        ("What a term means.", "Defines a term.", "Explains a term."),
        {"term": STRING},
        define,
        corpus.glossary,
        result_keys=("meaning", "result"),
    ),
}
# Tools that nothing asked here is for.
OTHERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("send_email", "Sends an email.", ("to", "text")),
    ("send_message", "Sends a message to somebody.", ("to", "text")),
    ("play_music", "Plays a song.", ("song",)),
    ("book_flight", "Books a flight to a city.", ("from", "to", "day")),
    ("book_hotel", "Finds a room in a city.", ("city", "days")),
    ("search", "Searches the web.", ("query",)),
    ("web_search", "Looks things up.", ("query",)),
    ("set_light", "Turns the light on or off.", ("color",)),
    ("open_door", "Opens a door.", ("door",)),
    ("get_stock", "The price of a stock.", ("name",)),
    ("buy_ticket", "Buys tickets for a train.", ("to", "number")),
    ("translate", "Translates a text.", ("text", "to")),
    ("take_note", "Writes a note.", ("text",)),
    ("set_timer", "Sets a timer.", ("minutes",)),
    ("order_coffee", "Orders coffee.", ("size",)),
    ("get_news", "The news of the day.", ()),
    ("read_file", "Reads a file.", ("path",)),
    ("get_user", "Finds a user by name.", ("name",)),
    ("population", "How many people live in a country.", ("country",)),
    ("get_river", "The longest river of a country.", ("country",)),
)
