"""Tries constraints out, in a process of its own: `python -m services.llm.vllm.grammar_sandbox`.

A grammar is made by code that cannot be interrupted, and its cost cannot be read from its text: a JSON Schema of
30 bytes (`{"multipleOf": 1000003}`) takes seconds and hundreds of megabytes. So each is made here first, in a fork that
the kernel ends when it has used up its time or its memory, and followed for a few tokens of the model's vocabulary.
A grammar that passes here is as little work in the engine. Forks are cheap: nothing but llguidance is loaded.

Lines of JSON: the first says how (`Terms`), each after it is a constraint to try (`kind`, `value`), and is answered by
a line (`GrammarVerdict`). Ends when its input does.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

_STEPS = 16  # tokens that a grammar is followed for: what is too much for the parser shows at the first choices
ROW_ITEMS = 500  # ways to read on that a grammar may keep open at once; a token takes up to the square of them
_MOST_SAID = 1_000  # characters of a reason, which may repeat the whole constraint, and is read as one line
_MORE_BYTES = 512 * 1024 * 1024  # that a fork may have beyond what it began with


@dataclass(frozen=True, slots=True)
class Terms:
    """`tokenizer` as Hugging Face's JSON, or `byte`. A fork has `cpu_s` to make a grammar, and as much to follow it."""

    cpu_s: float
    tokenizer: str = "byte"
    vocabulary: int | None = None
    eos: int | list[int] | None = None
    whitespace: bool = True


@dataclass(frozen=True, slots=True)
class GrammarVerdict:
    """Why it is refused, or nothing; the processor time that it took to make, and all that was spent on it here."""

    refused: str
    cpu_s: float
    spent_s: float


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's: the parent ends this process
    os.nice(10)  # the engine goes first
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a fork that breaks would leave hundreds of megabytes
    lines = sys.stdin.buffer
    terms = Terms(**json.loads(lines.readline()))
    from llguidance import LLTokenizer

    tokenizer = LLTokenizer(terms.tokenizer, n_vocab=terms.vocabulary, eos_token=terms.eos)
    print("ready", flush=True)
    for line in lines:
        if (child := os.fork()) == 0:
            _try(line, terms, tokenizer)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps(asdict(_ended(status, terms.cpu_s))), flush=True)


def _ended(status: int, cpu_s: float) -> GrammarVerdict:
    """The verdict on a fork that did not report one."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return GrammarVerdict(f"more than {cpu_s * 1000:.0f} ms of work", cpu_s, 2 * cpu_s)
    return GrammarVerdict("the grammar cannot be made", cpu_s, 2 * cpu_s)


def _try(line: bytes, terms: Terms, tokenizer: Any) -> NoReturn:
    """Never returns: the fork ends here, with 0 once it has reported its verdict."""
    try:
        _limit(terms.cpu_s)
        started = time.process_time()
        matcher, refused = _make(json.loads(line), terms, tokenizer)
        cpu_s = time.process_time() - started
        if matcher is not None:
            _limit(terms.cpu_s)
            refused = _follow(matcher, tokenizer.vocab_size)
        signal.setitimer(signal.ITIMER_PROF, 0)
        verdict = GrammarVerdict(refused[:_MOST_SAID], cpu_s, time.process_time())
        os.write(1, json.dumps(asdict(verdict)).encode() + b"\n")
        os._exit(0)
    finally:
        os._exit(1)


def _limit(cpu_s: float) -> None:
    """Time from now on, by the kernel's own signal, whose default is to end the process; and memory."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    size = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _MORE_BYTES, resource.RLIM_INFINITY))


def _make(constraint: dict[str, str], terms: Terms, tokenizer: Any) -> tuple[Any, str]:
    """The matcher of a constraint, as vLLM's `guidance` backend compiles it; else the reason of the failure."""
    from llguidance import LLMatcher, LLParserLimits, grammar_from

    try:
        kind: Any = constraint["kind"]
        if kind in ("regex", "choice", "grammar"):
            grammar = grammar_from(kind, constraint["value"])
        else:
            options: Any = {"whitespace_flexible": terms.whitespace}
            grammar = LLMatcher.grammar_from_json_schema(constraint["value"], defaults=options)
    except ValueError as error:
        return None, str(error)
    limits = LLParserLimits(max_items_in_row=ROW_ITEMS) if kind == "grammar" else None
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    return (None, matcher.get_error()) if matcher.is_error() else (matcher, "")


def _follow(matcher: Any, vocabulary: int) -> str:
    """Why an answer could not be written, or nothing. The same steps each time."""
    rng = random.Random(0)
    for _ in range(_STEPS):
        mask = int.from_bytes(matcher.compute_bitmask(), "little") & (1 << vocabulary) - 1
        if matcher.is_error():
            break
        if not mask or not matcher.consume_token(_one_of(mask, vocabulary, rng)) or matcher.is_stopped():
            break
    return str(matcher.get_error())


def _one_of(mask: int, vocabulary: int, rng: random.Random) -> int:
    """The number of a bit that is set, found from a random one on."""
    start = rng.randrange(vocabulary)
    rest = mask >> start or mask << (vocabulary - start)
    return (start + (rest & -rest).bit_length() - 1) % vocabulary


if __name__ == "__main__":
    main()
