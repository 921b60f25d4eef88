"""Chats with tools, over the same closed world as `corpus`: when to call which, with what, and what to make of it.

A chat offers some tools in OpenAI's form: which, in which order and described how, varies, and beside them are tools
that nothing here is for. A question that one of them fits is answered by a call, one for each thing asked, and the
results by a sentence; any other question is answered as without tools. As in `corpus`, all is a pure function of a
seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import corpus
import corpus_tables as tables
from tool_families import FAMILIES, INTEGER, OTHERS, STRING, Asked

Chat = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # tools and messages


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
    return "_".join(rng.sample(tables.FILLER + tables.ANIMALS + tables.THINGS, rng.randint(1, 2)))


def _offer(rng: random.Random, name: str) -> Offered:
    family = FAMILIES[name]
    described = rng.choice(family.descriptions) if rng.random() < 0.8 else ""
    required = list(family.arguments) if rng.random() < 0.7 else None
    return Offered(_function(family.name, described, dict(family.arguments), required), name)


def _other(rng: random.Random) -> Offered:
    if rng.random() < 0.3:
        name, description = _invented(rng), ""
        arguments = tuple(rng.sample(tables.FILLER, rng.randint(0, 2)))
        if rng.random() < 0.5:
            description = f"{rng.choice(('Opens', 'Finds', 'Sends', 'Paints'))} the {rng.choice(tables.FILLER)}."
    else:
        name, description, arguments = rng.choice(OTHERS)
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
    messages = [{"role": "system", "content": tables.SYSTEM_PROMPT}] if rng.random() < 0.3 else []
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
