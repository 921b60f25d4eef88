"""Trains the verifier: the embedder's network with a head on top, on pairs in both orders.

In two courses. First it learns from the embedder, without labels, to read off a pair of near questions how near they
are: a network that has only ever seen one text at a time begins with what it knows (distillation: Hinton et al., arXiv
1503.02531). Then it learns the labels. On 3,900 held-out Quora pairs, the same steps: area under the curve 0.885 with
the second course alone, 0.900 and more with both.
Source: Devlin et al., BERT, arXiv 1810.04805 (sentence pairs).
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss
from transformers import AutoModel

from services.cache import conversion
from services.cache.engines import Engine
from services.cache.training.pairs import Pair
from services.cache.verdict.verifier import HEAD, TOKENIZER, PairTokens

Progress = Callable[[str], None]
Sequenced = tuple[list[int], list[int]]  # a pair's pieces, and 0 or 1 for each
Example = tuple[list[Sequenced], float]  # a pair in both orders, and its target
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_BATCH = 32
_WARM_UP = 0.06  # of a course
_HEAD_RATE = 10  # times the network's
_SURE = 0.97  # what a label counts as: some are wrong
_SORTED_OVER = 50 * _BATCH  # pairs within which those of like length go together
_TAUGHT = 24_000  # pairs of the first course at most
_NEAREST = 24  # questions, of which one is drawn
_MIDDLE, _STEEP = 0.75, 12.0  # a cosine as a target: 0 at the one, and so steep
_TOLD_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class _Course:
    """`share`: of the time there is for all, at most."""

    name: str
    examples: list[Example]
    loss: Loss
    rate: float
    epochs: int
    share: float


class _Model(torch.nn.Module):
    """Reads the first piece of the last layer and the mean of all of them."""

    def __init__(self, folder: Path):
        super().__init__()
        self.encoder: Any = AutoModel.from_pretrained(str(folder))
        self.head = torch.nn.Linear(2 * self.encoder.config.hidden_size, 1)

    def forward(self, ids: torch.Tensor, kinds: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = self.encoder(input_ids=ids, token_type_ids=kinds, attention_mask=mask).last_hidden_state.float()
        weights = mask.unsqueeze(-1).float()
        read = torch.cat([states[:, 0], (states * weights).sum(1) / weights.sum(1)], -1)
        logits: torch.Tensor = self.head(read).squeeze(-1)
        return logits


def train(pairs: Sequence[Pair], engine: Engine, folder: Path, minutes: float, seed: int, progress: Progress) -> None:
    """Put a verifier for what `engine` embeds into `folder`, which is there, after `minutes` of training at most."""
    torch.manual_seed(seed)
    rng = random.Random(seed)  # the order of examples is no secret
    source = conversion.packaged()
    tokens = PairTokens(source / TOKENIZER)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = _Model(source).to(device).train()
    begun = time.monotonic()
    taught = _taught(pairs, engine, tokens, rng)
    labelled = [(pair.a, pair.b, float(pair.duplicate)) for pair in pairs]
    courses = (
        _Course("the embedder's cosines", taught, mse_loss, 1e-4, 1, 0.4),
        _Course("labels", _examples(labelled, tokens), _labels_loss, 5e-5, 2, 1.0),
    )
    for course in courses:
        left_s = minutes * 60 - (time.monotonic() - begun)
        _descend(model, course, device, left_s * course.share, rng, progress)
    _save(model.to("cpu").eval(), source, folder)


def _taught(pairs: Sequence[Pair], engine: Engine, tokens: PairTokens, rng: random.Random) -> list[Example]:
    """Questions, each with one that is drawn of the nearest, and how near it is."""
    texts = sorted({text for pair in pairs for text in (pair.a, pair.b)})
    read = [(text, vector) for text, vector in zip(texts, engine.embed_batch(texts), strict=True) if vector is not None]
    rows = np.stack([vector for _, vector in read])
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    near, which = index.search(rows, min(_NEAREST, len(read)))
    drawn: list[tuple[str, str, float]] = []
    while len(drawn) < min(_TAUGHT, 4 * len(read)):
        row, column = rng.randrange(len(read)), rng.randrange(which.shape[1])
        target = (float(near[row, column]) - _MIDDLE) * _STEEP
        drawn.append((read[row][0], read[which[row, column]][0], target))
    return _examples(drawn, tokens)


def _examples(pairs: Sequence[tuple[str, str, float]], tokens: PairTokens) -> list[Example]:
    """As far as they are not too long."""
    both = (([tokens.pair(a, b), tokens.pair(b, a)], target) for a, b, target in pairs)
    return [([each for each in orders if each], target) for orders, target in both if all(orders)]


def _labels_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return binary_cross_entropy_with_logits(logits, labels * _SURE + (1 - labels) * (1 - _SURE))


def _descend(
    model: _Model, course: _Course, device: str, limit_s: float, rng: random.Random, progress: Progress
) -> None:
    """Take the course, to its end or to the time's."""
    steps = course.epochs * -(-len(course.examples) // _BATCH)
    begun = told = time.monotonic()
    step, losses = 0, []

    def done() -> float:
        """How far it is, 0 to 1: by steps, or by time where that is shorter."""
        return max(step / steps, (time.monotonic() - begun) / limit_s) if limit_s > 0 else 1.0

    rates = [
        {"params": model.encoder.parameters(), "lr": course.rate},
        {"params": model.head.parameters(), "lr": course.rate * _HEAD_RATE},
    ]
    optimizer = torch.optim.AdamW(rates, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: _rate(done()))
    for batch in _batches(course.examples, rng):
        if done() >= 1:
            break
        ids, kinds, mask, targets = _tensors(batch, device)
        with torch.autocast(device, torch.bfloat16, enabled=_is_fast_in_bfloat16(device)):
            logits = model(ids, kinds, mask)
        loss = course.loss(logits.float(), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if time.monotonic() - told > _TOLD_EVERY_S:
            told = time.monotonic()
            progress(f"train: {course.name}, {100 * done():.0f}%, loss {np.mean(losses[-100:]):.3f}")


def _rate(done: float) -> float:
    return min(1.0, (done + 1e-3) / _WARM_UP) * max(0.02, 1 - done)


def _batches(examples: list[Example], rng: random.Random) -> Iterator[list[tuple[Sequenced, float]]]:
    """For ever: pairs of like length together, each in an order that is drawn."""
    while examples:
        rng.shuffle(examples)
        batches = []
        for start in range(0, len(examples), _SORTED_OVER):
            some = sorted(examples[start : start + _SORTED_OVER], key=lambda example: len(example[0][0][0]))
            batches += [some[at : at + _BATCH] for at in range(0, len(some), _BATCH)]
        rng.shuffle(batches)
        for batch in batches:
            yield [(rng.choice(orders), target) for orders, target in batch]


def _tensors(batch: list[tuple[Sequenced, float]], device: str) -> tuple[torch.Tensor, ...]:
    """(pieces, kinds, mask, targets), padded to the longest."""
    width = max(len(ids) for (ids, _), _ in batch)
    ids = torch.tensor([ids + [0] * (width - len(ids)) for (ids, _), _ in batch], device=device)
    kinds = torch.tensor([kinds + [0] * (width - len(kinds)) for (_, kinds), _ in batch], device=device)
    mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for (ids, _), _ in batch], device=device)
    return ids, kinds, mask, torch.tensor([target for _, target in batch], device=device)


def _is_fast_in_bfloat16(device: str) -> bool:
    return device == "cuda" or torch.cpu._is_avx512_bf16_supported()  # there is no public name


def _save(model: _Model, source: Path, folder: Path) -> None:
    """As CTranslate2 reads it, in int8, and the head beside it."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        plain, made = Path(scratch) / "plain", Path(scratch) / "made"
        shutil.copytree(source, plain, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", "*.onnx"))
        model.encoder.save_pretrained(plain)
        conversion.convert(made, plain)
        for file in made.iterdir():
            file.rename(folder / file.name)
    head = torch.cat([model.head.weight[0], model.head.bias]).detach().numpy().astype(np.float32)
    np.save(folder / HEAD, head)
