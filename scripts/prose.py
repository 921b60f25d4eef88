"""Refuses words that have a plainer one, in the text that people read. `make lint` runs it.

It reads Markdown outside of code, comments and docstrings of Python, comments of protos, and, outside of tests, strings
of four words or more (descriptions, help, errors, logs). Names in product code have a list of their own. `prose.toml`
has the number of such words and names that each folder may still hold, 0 where a folder is not listed; `--lower` writes
today's numbers where they are lower. vale reads no strings, and its wheels download a program at their first start.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]
ALLOWED = Path(__file__).with_suffix(".toml")
# Generated from a source that is read, and this list.
SKIPPED = {"docs/faults.md", "scripts/prose.py"}
# Their strings are what callers and models say, and no prose of ours.
SPOKEN = {"bench/cache/synthetic.py", "services/cache/semantic_match/facts.py"}
SPOKEN |= {"training/text_corpus.py", "training/text_templates.py"}
SPOKEN |= {"services/gateway/answer/stages/cascade.py"}
_NOUN = "name the caller, tenant, operator or component"
INSTEAD = {
    r"who|whom|whoever|whomever": _NOUN,
    r"(?:no|some|any|every)(?:body|one)|no one": _NOUN,
    r'(?<=[.;"#\n][ "\n])what(?:ever)?(?= (?:[^.?!:\n]|\n(?!\n))*\.)': "start the sentence with a noun",
    r"theirs|the other one|siblings?": "repeat the noun",
    r"tells?(?! me\b)|telling|told": "report, notify, show, configure",
    r"by (?:itself|themselves)": "automatically, alone, separately",
    r"anew|as ever": "again, as before",
    r"dear|dearer|dearest": "expensive, of higher priority",
    r"mends?|mended|mending": "fix",
    r"diets?": "prompt compression",
    r"doors?": "HTTP API, admission control",
    r"walls?": "isolation",
    r"sights?": "image labels",
    r"crowds?|crowded": "load",
}
PRODUCT = ("hedgerow/", "hedgerow_cli/", "launcher/", "services/", "scripts/", "docs/")
# A name with such a part, between underscores, does not say what it holds or does.
VAGUE = "told|tells?|anew|dear|nobody|sag|crowd|hears?|heard|mend|diet|door|walls|mine|theirs"
_VAGUE_NAME = re.compile(rf"(?:^|[._])(?:{VAGUE})(?:$|[._])", re.IGNORECASE)
_WORDS = re.compile("|".join(rf"(\b(?:{words})\b)" for words in INSTEAD), re.IGNORECASE)
_CODE = re.compile(r"(?ms)^ *```.*?^ *```|`[^`\n]+`|\{[^{}\n]*\}|<!--.*?-->|\]\([^)]*\)|https?://\S+")
_BEFORE_DOCSTRINGS = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_FOUR_WORDS = re.compile(r"\w\S*(?:\s+\S+){3}")


class Found(NamedTuple):
    path: str
    line: int
    word: str
    instead: str


def found(path: str, text: str) -> Iterator[Found]:
    for line, prose in python(path, text) if path.endswith(".py") else [(1, text)]:
        if path.endswith(".proto"):
            prose = re.sub(r"^(?:(?!//).)*", "", prose, flags=re.MULTILINE)
        plain = _CODE.sub(lambda code: "\n" * code[0].count("\n"), prose)
        for word in _WORDS.finditer(plain):
            instead = [*INSTEAD.values()][(word.lastindex or 1) - 1]
            yield Found(path, line + plain.count("\n", 0, word.start()), word[0], instead)


def vague_names(path: str, text: str) -> Iterator[Found]:
    """The names in product code that have a vague part."""
    for node in ast.walk(ast.parse(text)) if path.endswith(".py") and path.startswith(PRODUCT) else ():
        for field in ("id", "attr", "arg", "name", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str) and _VAGUE_NAME.search(name):
                yield Found(path, getattr(node, "lineno", 0), name, "say what it holds or does: body, settings, notify")


def python(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings and, outside of tests and `SPOKEN`, other strings of four words, with their first lines."""
    strings, before = not (path.startswith("tests/") or path in SPOKEN), tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.string.startswith('"""') and before in _BEFORE_DOCSTRINGS
        read = docstring or (strings and _FOUR_WORDS.search(token.string))
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and read):
            yield token.start[0], token.string
        before = token.type


def main(arguments: list[str]) -> int:
    """Print the words of each folder that has more than it may, of the files that were changed last first."""
    listed = run(["git", "ls-files", "*.md", "*.py", "*.proto"], cwd=REPOSITORY, capture_output=True, check=True)
    names = {name for name in listed.stdout.decode().split() if "_pb2" not in name} - SKIPPED
    folders: dict[str, list[Found]] = defaultdict(list)
    for path in sorted(filter(Path.exists, map(REPOSITORY.joinpath, names)), key=lambda path: -path.stat().st_mtime):
        file = path.relative_to(REPOSITORY)
        here = folders["/".join(file.parent.parts[:2]) or "."]
        here += [*found(file.as_posix(), path.read_text()), *vague_names(file.as_posix(), path.read_text())]
    allowed: dict[str, int] = tomllib.loads(ALLOWED.read_text())
    if "--lower" in arguments:
        counts = {name: min(count, len(folders[name])) for name, count in sorted(allowed.items())}
        ALLOWED.write_text("".join(f'"{name}" = {count}\n' for name, count in counts.items() if count))
    over = {name: here for name, here in sorted(folders.items()) if len(here) > allowed.get(name, 0)}
    for name, here in over.items():
        print(f"{name}: {len(here)} words and names, {allowed.get(name, 0)} allowed (scripts/prose.py)")
        print(*(f"  {each.path}:{each.line}: “{each.word}”: {each.instead}" for each in here[:40]), sep="\n")
    return bool(over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
