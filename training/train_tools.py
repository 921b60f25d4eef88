"""Teach the demo language models to call tools, going on from their checkpoints, on a CPU.

    python train_tools.py MODELS OUT [--minutes N]

Reads MODELS/demo-llm and MODELS/demo-llm-draft, writes OUT/demo-llm and OUT/demo-llm-draft. Some texts are of
`corpus`, which the models were trained on before, so that they forget nothing; the others are of `tool_corpus`. Each
thread has a batch of its own: the models are too small for two threads to share one. A run can continue from the models
of an earlier run, with another `--seed`.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from transformers import AutoTokenizer, LlamaForCausalLM

import corpus
import tool_corpus
from train_llm import CHAT_TEMPLATE, CONTEXT, IGNORED, Batch, Chats, encode, exact, held_out_questions, padded

THREADS = 2
TOKENS = 2048  # of a batch with tools, for each thread
OLD_TOKENS = 757  # beside them, of texts that were trained on before: 27%
HELD_OUT = 512  # questions, and chats with tools
POOL = 256  # chats that are sorted by length, so that a batch has chats of one length


def encode_chat(tokenizer, chat: tool_corpus.Chat) -> tuple[list[int], list[bool]]:
    """Tokens, and which of them the assistant says. As the chat template has it."""
    tools, messages = chat
    ids: list[int] = []
    targets: list[bool] = []
    template = dict(tools=tools or None, tokenize=False)
    shown = tokenizer.apply_chat_template(messages, **template)
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = tokenizer.apply_chat_template(messages[:index], add_generation_prompt=True, **template)
        after = tokenizer.apply_chat_template(messages[: index + 1], **template)
        for text, said in ((before[len(tokenizer.decode(ids)) :], False), (after[len(before) :], True)):
            more = tokenizer(text, add_special_tokens=False).input_ids
            ids += more
            targets += [said and "cut" not in message] * len(more)
    assert tokenizer.decode(ids) == shown
    return ids, targets


def with_tools(tokenizer, seed: int, size: int) -> Iterator[Batch]:
    """Batches of about `size` tokens."""
    rng, chats = random.Random(seed), tool_corpus.chats(seed)
    while True:
        pool = [encode_chat(tokenizer, chat) for chat in itertools.islice(chats, POOL)]
        pool = sorted((chat for chat in pool if len(chat[0]) <= CONTEXT), key=lambda chat: len(chat[0]))
        batches: list[Chats] = [[]]
        for chat in pool:
            if batches[-1] and len(chat[0]) * (len(batches[-1]) + 1) > size:
                batches.append([])
            batches[-1].append(chat)
        rng.shuffle(batches)
        yield from map(padded, batches)


def as_before(tokenizer, seed: int, size: int) -> Iterator[Batch]:
    """Batches of about `size` tokens: rows of several chats, as `train_llm` has them."""
    chats = corpus.dialogues(seed)
    rows: Chats = [([], [])]
    while True:
        ids, targets = encode(tokenizer, next(chats))
        if len(rows[-1][0]) + len(ids) > CONTEXT:
            if len(rows) * CONTEXT >= size:
                yield padded(rows)
                rows = []
            rows.append(([], []))
        rows[-1][0].extend(ids)
        rows[-1][1].extend(targets)


def loss_of(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Summed over what the assistant says; nothing else is computed to the end."""
    tokens, wanted = batch
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
        said = wanted != IGNORED
        logits = model.lm_head(hidden[said])
    return F.cross_entropy(logits.float(), wanted[said], reduction="sum")


class Trainer:
    """Some threads that share a model's weights; each has gradients of its own."""

    def __init__(self, model: LlamaForCausalLM, threads: int):
        self.model = model
        self._copies = [model, *(copy.deepcopy(model) for _ in range(threads - 1))]
        for other in self._copies[1:]:
            for mine, its in zip(model.parameters(), other.parameters(), strict=True):
                its.data = mine.data
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def gradients(self, batches: list[list[Batch]]) -> float:
        """Compute the gradients of the mean loss in the model. Returns the loss."""
        count = sum(int((wanted != IGNORED).sum()) for each in batches for _, wanted in each)
        loss = sum(self._pool.map(self._backward, self._copies, batches, itertools.repeat(count)))
        for other in self._copies[1:]:
            for mine, its in zip(self.model.parameters(), other.parameters(), strict=True):
                mine.grad += its.grad
                its.grad = None
        return loss

    @staticmethod
    def _backward(model: LlamaForCausalLM, batches: list[Batch], count: int) -> float:
        total = 0.0
        for batch in batches:
            loss = loss_of(model, batch) / count
            loss.backward()
            total += loss.item()
        return total


def train(folder: Path, tokenizer, seed: int, peak: float, minutes: float) -> LlamaForCausalLM:
    """For `minutes`; the learning rate falls with them."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.0)
    trainer = Trainer(model, THREADS)
    sources = [
        (with_tools(tokenizer, 1_000 + place, TOKENS), as_before(tokenizer, 2_000 + place, 2 * OLD_TOKENS))
        for place in range(100 * seed, 100 * seed + THREADS)
    ]
    started, last, losses, seen = time.time(), time.time(), [], 0
    for step in itertools.count():
        spent = (time.time() - started) / 60
        done = spent / minutes
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = peak * min((step + 1) / 40, 0.5 * (1 + math.cos(math.pi * done)))
        # An old batch each second time.
        batches = [[next(new), next(old)] if step % 2 else [next(new)] for new, old in sources]
        seen += sum(tokens.numel() for each in batches for tokens, _ in each)
        losses.append(trainer.gradients(batches))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if time.time() - last > 60:
            print(
                f"{folder.name} step {step} loss {sum(losses) / len(losses):.4f} {seen / 1e6:.2f} M tokens {spent:.1f} min"
                f" {seen / spent / 60:.0f} tokens/s",
                flush=True,
            )
            last, losses = time.time(), []
    print(f"{folder.name} {step} steps, {seen / 1e6:.2f} M tokens", flush=True)
    return model


def score(model: LlamaForCausalLM, tokenizer, count: int) -> dict[str, str]:
    """Shares of held-out turns that are said exactly, by what they are."""
    found: dict[str, list[bool]] = {"questions without tools": []}
    for turns in exact(model, held_out_questions(tokenizer, count)):
        found["questions without tools"] += turns
    rng = random.Random(20_002)
    chats = [tool_corpus.chat(rng) for _ in range(count)]
    for (_, messages), turns in zip(chats, exact(model, [encode_chat(tokenizer, chat) for chat in chats])):
        spoken = [
            index for index, message in enumerate(messages) if message["role"] == "assistant" and "cut" not in message
        ]
        for index, right in zip(spoken, turns, strict=True):
            if str(messages[index]["content"]).startswith("Once upon"):
                continue  # stories branch
            calls = messages[index].get("tool_calls", ())
            after = messages[index - 1]["role"] == "tool"
            kind = ("one call", "two calls")[len(calls) - 1] if calls else "from results" if after else "no call"
            found.setdefault(kind, []).append(right)
    return {kind: f"{sum(right)} of {len(right)}" for kind, right in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=50, help="for both models")
    parser.add_argument("--seed", type=int, default=0, help="of what is read: another one to go on from a run")
    args = parser.parse_args()
    torch.manual_seed(0)
    for name, peak, share in (("demo-llm", 1e-3, 0.8), ("demo-llm-draft", 2e-3, 0.2)):
        tokenizer = AutoTokenizer.from_pretrained(args.models / name)
        tokenizer.chat_template = CHAT_TEMPLATE
        model = train(args.models / name, tokenizer, args.seed, peak, args.minutes * share)
        model = model.to(torch.bfloat16)
        model.save_pretrained(args.out / name)
        tokenizer.save_pretrained(args.out / name)
        for kind, figures in score(model, tokenizer, HELD_OUT).items():
            print(f"{name}, {kind}: {figures}", flush=True)


if __name__ == "__main__":
    main()
