"""Trains the verifier: the embedder's network with a head on top, on pairs in both orders.

Source: Devlin et al., BERT, arXiv 1810.04805 (sentence pairs).
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import AutoModel

from services.cache import conversion
from services.cache.training.pairs import Pair
from services.cache.verdict.verifier import HEAD, TOKENIZER, PairTokens

Progress = Callable[[str], None]

_BATCH = 32
_EPOCHS = 5
_RATE, _HEAD_RATE = 8e-5, 8e-4
_WARM_UP = 0.06  # of the whole
_SURE = 0.97  # what a label counts as: some are wrong
_SORTED_OVER = 50 * _BATCH  # pairs within which those of like length go together
_TOLD_EVERY_S = 30.0


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


def train(pairs: Sequence[Pair], folder: Path, minutes: float, seed: int, progress: Progress) -> None:
    """Put a verifier into `folder`, which is there, after `minutes` of training at most."""
    torch.manual_seed(seed)
    rng = random.Random(seed)  # the order of examples is no secret
    source = conversion.packaged()
    tokens = PairTokens(source / TOKENIZER)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = _Model(source).to(device).train()
    _descend(model, _examples(pairs, tokens), device, minutes * 60, rng, progress)
    _save(model.to("cpu").eval(), source, folder)


def _examples(pairs: Sequence[Pair], tokens: PairTokens) -> list[tuple[list[tuple[list[int], list[int]]], float]]:
    """Each pair in both orders, as far as it is not too long, and its label."""
    both = (([tokens.pair(pair.a, pair.b), tokens.pair(pair.b, pair.a)], pair.duplicate) for pair in pairs)
    return [([each for each in orders if each], float(label)) for orders, label in both if all(orders)]


def _descend(
    model: _Model, examples: list[Any], device: str, limit_s: float, rng: random.Random, progress: Progress
) -> None:
    steps = _EPOCHS * -(-len(examples) // _BATCH)
    begun = told = time.monotonic()
    step, losses = 0, []

    def done() -> float:
        """How far it is, 0 to 1: by steps, or by time where that is shorter."""
        return max(step / steps, (time.monotonic() - begun) / limit_s)

    rates = [
        {"params": model.encoder.parameters(), "lr": _RATE},
        {"params": model.head.parameters(), "lr": _HEAD_RATE},
    ]
    optimizer = torch.optim.AdamW(rates, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: _rate(done()))

    for batch in _batches(examples, rng):
        if done() >= 1:
            break
        loss = _loss(model, batch, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if time.monotonic() - told > _TOLD_EVERY_S:
            told = time.monotonic()
            progress(f"train: {100 * done():.0f}%, step {step}, loss {np.mean(losses[-100:]):.3f}")


def _rate(done: float) -> float:
    return min(1.0, (done + 1e-3) / _WARM_UP) * max(0.02, 1 - done)


def _batches(examples: list[Any], rng: random.Random) -> Iterator[list[tuple[list[int], list[int], float]]]:
    """For ever: pairs of like length together, each in an order that is drawn."""
    while True:
        rng.shuffle(examples)
        batches = []
        for start in range(0, len(examples), _SORTED_OVER):
            some = sorted(examples[start : start + _SORTED_OVER], key=lambda example: len(example[0][0][0]))
            batches += [some[at : at + _BATCH] for at in range(0, len(some), _BATCH)]
        rng.shuffle(batches)
        for batch in batches:
            yield [(*rng.choice(orders), label) for orders, label in batch]


def _loss(model: _Model, batch: list[tuple[list[int], list[int], float]], device: str) -> torch.Tensor:
    width = max(len(ids) for ids, _, _ in batch)
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _, _ in batch], device=device)
    kinds = torch.tensor([kinds + [0] * (width - len(kinds)) for _, kinds, _ in batch], device=device)
    mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _, _ in batch], device=device)
    labels = torch.tensor([label * _SURE + (1 - label) * (1 - _SURE) for _, _, label in batch], device=device)
    with torch.autocast(device, torch.bfloat16, enabled=_is_fast_in_bfloat16(device)):
        logits = model(ids, kinds, mask)
    return binary_cross_entropy_with_logits(logits.float(), labels)


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
