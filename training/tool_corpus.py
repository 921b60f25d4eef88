"""Chats with tools, over the same closed world as `corpus`: when to call which, with what, and what to make of it.

A chat offers some tools in OpenAI's form: which, in which order and described how, varies, and beside them are tools
that nothing here is for. A question that one of them fits is answered by a call, one for each thing asked, and the
results by a sentence; any other question is answered as without tools. As in `corpus`, all is a pure function of a
seed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import corpus

Chat = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # tools and messages
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
    city, sky = rng.choice(corpus.CITIES), rng.choice(corpus.WEATHER)
    question = rng.choice(
        (
            f"What is the weather in {city}?",
            f"What's the weather like in {city}?",
            f"How is the weather in {city}?",
            f"Tell me the weather in {city}.",
            f"Is it {rng.choice(corpus.WEATHER)} in {city}?",
        )
    )
    result = sky if rng.random() < 0.5 else f"{sky} with {rng.randint(-10, 38)} degrees"
    said = f"The weather in {city} is {{}}."
    return Asked(question, {"city": city}, said, result, corpus.FALLBACK, city)


def clock(rng: random.Random) -> Asked:
    city, hour = rng.choice(corpus.CITIES), f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
    question = rng.choice(
        (f"What time is it in {city}?", f"What's the time in {city}?", f"Tell me the time in {city}.")
    )
    return Asked(question, {"city": city}, f"It is {{}} in {city}.", hour, corpus.FALLBACK, city)


def capital(rng: random.Random) -> Asked:
    question, found, answer = _read(corpus.capital, r"The capital of (.+) is (.+)\.", rng)
    city = found[2] if rng.random() < 0.7 else rng.choice(corpus.CITIES)  # a tool is believed
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
    term, meaning = rng.choice(sorted(corpus.GLOSSARY.items()))
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
_OTHERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
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
_FAILURES = ("not found", "no answer", "try again later")
_STARTS = {"What": "what", "Which": "which", "How": "how", "Tell": "tell", "Compute": "compute", "Give": "give"}


@dataclass(frozen=True)
class Offered:
    """A tool of a chat."""

    definition: dict[str, Any]
    family: str = ""  # none: nothing asked here is for it


def _function(name: str, description: str, properties: dict[str, Any], required: list[str] | None) -> dict[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required is not None:
        parameters["required"] = required
    function = {"name": name, "parameters": parameters}
    if description:
        function["description"] = description
    return {"type": "function", "function": function}


def _invented(rng: random.Random) -> str:
    return "_".join(rng.sample(corpus.FILLER + corpus.ANIMALS + corpus.THINGS, rng.randint(1, 2)))


def _offer(rng: random.Random, name: str) -> Offered:
    family = FAMILIES[name]
    described = rng.choice(family.descriptions) if rng.random() < 0.8 else ""
    required = list(family.arguments) if rng.random() < 0.7 else None
    return Offered(_function(family.name, described, dict(family.arguments), required), name)


def _other(rng: random.Random) -> Offered:
    if rng.random() < 0.3:
        name, description = _invented(rng), ""
        arguments = tuple(rng.sample(corpus.FILLER, rng.randint(0, 2)))
        if rng.random() < 0.5:
            description = f"{rng.choice(('Opens', 'Finds', 'Sends', 'Paints'))} the {rng.choice(corpus.FILLER)}."
    else:
        name, description, arguments = rng.choice(_OTHERS)
        description = description if rng.random() < 0.8 else ""
    numbers = {"days", "number", "minutes"}
    properties = {each: INTEGER if each in numbers else STRING for each in arguments}
    return Offered(_function(name, description, properties, list(properties) if rng.random() < 0.7 else None))


def _call(offered: Offered, asked: Asked) -> dict[str, Any]:
    name = offered.definition["function"]["name"]
    return {"type": "function", "function": {"name": name, "arguments": asked.arguments}}


def _result(rng: random.Random, offered: Offered, asked: Asked) -> tuple[str, str]:
    """The result of the tool, and the sentence that states it."""
    if rng.random() < 0.06:
        failure = rng.choice(_FAILURES)
        told = json.dumps({"error": failure}) if rng.random() < 0.5 else f"error: {failure}"
        return told, f"The tool failed: {failure}."
    result = asked.result
    said = asked.said.format(result)
    if rng.random() < 0.5:
        return result, said
    number = result.lstrip("-").isdigit() and rng.random() < 0.5
    echoed = asked.arguments if rng.random() < 0.2 else {}
    key = rng.choice(FAMILIES[offered.family].result_keys)
    if " with " in result and result.endswith("degrees") and rng.random() < 0.7:
        sky, degrees = result.removesuffix(" degrees").split(" with ")
        return json.dumps({**echoed, key: sky, "degrees": int(degrees)}), said
    return json.dumps({**echoed, key: int(result) if number else result}), said


def _two(rng: random.Random, offered: list[Offered]) -> tuple[str, list[tuple[Offered, Asked]]] | None:
    """A question for two things."""
    first = rng.choice(offered)
    family = FAMILIES[first.family]
    one = family.ask(rng)
    if family.several and rng.random() < 0.5:
        two = family.ask(rng)
        if two.short == one.short:
            return None
        return family.several.format(one.short, two.short), [(first, one), (first, two)]
    second = rng.choice(offered)
    two = FAMILIES[second.family].ask(rng)
    if two.question == one.question:
        return None
    start, _, rest = two.question.partition(" ")
    if one.question.endswith("?") and two.question.endswith("?") and start in _STARTS and rng.random() < 0.6:
        return f"{one.question[:-1]} and {_STARTS[start]} {rest}", [(first, one), (second, two)]
    return f"{one.question} {two.question}", [(first, one), (second, two)]


def _answered(rng: random.Random, asked: list[tuple[Offered, Asked]]) -> list[dict[str, Any]]:
    """The calls, their results and the sentences."""
    results = [_result(rng, tool, each) for tool, each in asked]
    calls = [_call(tool, each) for tool, each in asked]
    together = len(asked) == 1 or rng.random() < 0.8  # else the caller takes one call at a time
    messages: list[dict[str, Any]] = []
    for turn in [range(len(asked))] if together else [[index] for index in range(len(asked))]:
        messages.append({"role": "assistant", "content": "", "tool_calls": [calls[index] for index in turn]})
        if len(turn) < len(asked) and turn[0] == 0:
            messages[-1]["cut"] = True  # the caller kept the first call alone: the message had more
        messages += [{"role": "tool", "content": results[index][0]} for index in turn]
    return [*messages, {"role": "assistant", "content": " ".join(said for _, said in results)}]


def _plain(rng: random.Random, families: set[str]) -> list[dict[str, Any]]:
    """A question that none of the tools is for."""
    taken = {FAMILIES[name].topic for name in families}
    if rng.random() < 0.12:
        if missing := [name for name in ("weather", "clock") if name not in families]:
            asked = FAMILIES[rng.choice(missing)].ask(rng)
            return _turn(asked.question, asked.plain)
    topics = {topic: weight for topic, weight in corpus.TOPICS.items() if topic not in taken}
    topics[corpus.story] = 1  # they are long, and branch
    (topic,) = rng.choices(tuple(topics), weights=tuple(topics.values()))
    turn = topic(rng)
    return _turn(turn.question(rng), turn.answer)


def _turn(question: str, answer: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _tools(rng: random.Random) -> list[Offered]:
    names = rng.sample(sorted(FAMILIES), rng.choices((0, 1, 2, 3), weights=(2, 5, 5, 2))[0])
    tools = [_offer(rng, name) for name in names]
    tools += [_other(rng) for _ in range(rng.choices((0, 1, 2), weights=(5, 4, 2))[0])]
    rng.shuffle(tools)
    called = [tool.definition["function"]["name"] for tool in tools]
    return tools if tools and len(set(called)) == len(called) else _tools(rng)


def chat(rng: random.Random) -> Chat:
    """One."""
    tools = _tools(rng)
    fitting = [tool for tool in tools if tool.family]
    families = {tool.family for tool in fitting}
    messages = [{"role": "system", "content": corpus.SYSTEM_PROMPT}] if rng.random() < 0.3 else []
    for _ in range(rng.choices((1, 2, 3), weights=(8, 2, 1))[0]):
        roll = rng.random()
        if not fitting or roll < 0.3:
            messages += _plain(rng, families)
            continue
        tool = rng.choice(fitting)
        asked = FAMILIES[tool.family].ask(rng)
        question, wanted = asked.question, [(tool, asked)]
        if roll < 0.5:
            question, wanted = _two(rng, fitting) or (question, wanted)
        messages += [{"role": "user", "content": question}, *_answered(rng, wanted)]
    return [tool.definition for tool in tools], messages


def chats(seed: int) -> Iterator[Chat]:
    """Endless chats; a few of them ask for what only a tool would know, and offer none."""
    rng = random.Random(seed)
    while True:
        if rng.random() < 0.04:
            yield [], _plain(rng, set())
        else:
            yield chat(rng)
