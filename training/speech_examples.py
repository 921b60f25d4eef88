"""Examples for the demo speech model: utterances read aloud by eSpeak NG, its tokenizer, and windows of both."""

from __future__ import annotations

import itertools
import random

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import WhisperFeatureExtractor

import corpus
from speech_data import RATE, Speaker

WINDOW = 30  # seconds Whisper's encoder sees
CONTROL = [
    f"<|{name}|>"
    for name in (
        "endoftext startoftranscript en translate transcribe startoflm startofprev nospeech notimestamps".split()
    )
]
TEXT_VOCABULARY = 1024


def train_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = (" " + text for text in itertools.islice(corpus.utterances(0), 30_000))
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=TEXT_VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in CONTROL])
    tokenizer.add_tokens([AddedToken(f"<|{i * 0.02:.2f}|>", special=False) for i in range(WINDOW * 50 + 1)])
    return tokenizer


def speak(job) -> tuple[str, list]:
    """Synthesize a share of the utterances; audio goes to a file, the rest comes back."""
    path, seed, count, library, data = job
    speaker, rng, audio, meta, offset = Speaker(library, data), random.Random(seed), [], [], 0
    for text in itertools.islice(corpus.utterances(seed), count):
        said = speaker.say(text, rng)
        audio.append(said.audio)
        meta.append((offset, len(said.audio), said.words, said.starts, said.end))
        offset += len(said.audio)
    np.save(path, np.concatenate(audio))
    return path, meta


class Examples:
    """Assembles training windows on the device: utterances with gaps, cut anywhere, under noise."""

    def __init__(self, tokenizer, audio: torch.Tensor, meta: list, device: str):
        self.tokenizer, self.audio, self.meta, self.device = tokenizer, audio, meta, device
        extractor = WhisperFeatureExtractor()
        self.filters = torch.tensor(extractor.mel_filters, dtype=torch.float32, device=device)
        self.hann = torch.hann_window(400, device=device)
        self.id = {t: tokenizer.token_to_id(t) for t in CONTROL}
        self.stamp0 = self.id["<|notimestamps|>"] + 1
        self.words: dict[str, list[int]] = {}

    def text_ids(self, words: list[str]) -> list[int]:
        ids = []
        for word in words:
            if word not in self.words:
                self.words[word] = self.tokenizer.encode(" " + word).ids
            ids += self.words[word]
        return ids

    def plan(self, rng: random.Random, window: float):
        """Choose the pieces of one window: (start s, source sample, samples, gain, words, first word s, last word s)."""
        if rng.random() < 0.04:
            return [], rng.uniform(1, window)
        roll = rng.random()
        length = (
            None
            if roll < 0.45
            else rng.uniform(1.5, min(13, window))
            if roll < 0.8
            else rng.uniform(window / 3, window)
        )
        pieces, now = [], rng.uniform(0, 0.6)
        while True:
            offset, samples, words, starts, end = rng.choice(self.meta)
            ends = starts[1:] + [end]
            skip = rng.uniform(0, 0.7 * samples / RATE) if length and not pieces and rng.random() < 0.5 else 0.0
            keep = min(samples / RATE - skip, (length or window) - now)
            heard = [(w, s, e) for w, s, e in zip(words, starts, ends) if s >= skip - 0.03 and e <= skip + keep + 0.03]
            pieces.append(
                (
                    now,
                    offset + int(skip * RATE),
                    int(keep * RATE),
                    rng.uniform(0.15, 1.0),
                    [w for w, _, _ in heard],
                    now + heard[0][1] - skip if heard else now,
                    now + heard[-1][2] - skip if heard else now,
                )
            )
            now += keep + rng.uniform(0.05, 1.2)
            if length is None or now >= length - 0.3:
                return pieces, min(window, length or now)

    def batch(self, rng: random.Random, size: int, window: float):
        plans = [self.plan(rng, window) for _ in range(size)]
        inputs, targets, texts = [], [], []
        for pieces, _ in plans:
            said = [p for p in pieces if p[4]]
            prefix = []
            if rng.random() < 0.3:
                before = [i for _ in range(rng.randint(1, 14)) for i in self.text_ids(rng.choice(self.meta)[2])]
                prefix = [self.id["<|startofprev|>"], *before[-220:]]
            body = [self.id["<|startoftranscript|>"]]
            text = [i for p in said for i in self.text_ids(p[4])]
            if not said:
                body += [self.id["<|nospeech|>"]]
            elif rng.random() < 0.5:
                body += [self.id["<|notimestamps|>"], *text]
            else:
                for *_, words, start, end in said:
                    body += [
                        self.stamp0 + round(start * 50),
                        *self.text_ids(words),
                        self.stamp0 + min(1500, round(end * 50)),
                    ]
            sequence = (prefix + body + [self.id["<|endoftext|>"]])[-440:]
            inputs.append(sequence[:-1])
            learn = len(sequence) - len(body) - 1  # nothing is learned on the prompt
            targets.append([-100] * learn + sequence[1 + learn :])
            texts.append(text)
        wave, lengths = self.waves(plans, rng, int(window * RATE))
        return self.mel(wave, lengths), self.pad(inputs, 0), self.pad(targets, -100), texts

    def waves(self, plans, rng: random.Random, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Gather every piece of the batch in one indexed copy, then add noise up to each window's length."""
        pieces = [
            (row * width + int(p[0] * RATE), p[1], min(p[2], width - int(p[0] * RATE)), p[3])
            for row, (parts, _) in enumerate(plans)
            for p in parts
            if int(p[0] * RATE) < width and p[2] > 0
        ]
        to, source, samples = (torch.tensor([p[i] for p in pieces], device=self.device) for i in range(3))
        gain = torch.tensor([p[3] for p in pieces], device=self.device) / 32768
        within = torch.arange(int(samples.sum()), device=self.device) - torch.repeat_interleave(
            samples.cumsum(0) - samples, samples
        )
        wave = torch.zeros(len(plans) * width, device=self.device)
        wave[torch.repeat_interleave(to, samples) + within] = self.audio[
            torch.repeat_interleave(source, samples) + within
        ].float() * torch.repeat_interleave(gain, samples)
        wave = wave.view(len(plans), width)
        lengths = torch.tensor([length for _, length in plans], device=self.device)
        level = torch.tensor([10 ** rng.uniform(-5, -1.9) for _ in plans], device=self.device)
        inside = torch.arange(width, device=self.device) < (lengths * RATE)[:, None]
        return wave + torch.randn_like(wave) * level[:, None] * inside, lengths

    def pad(self, rows: list[list[int]], value: int) -> torch.Tensor:
        width = max(map(len, rows))
        return torch.tensor([row + [value] * (width - len(row)) for row in rows], device=self.device)

    def mel(self, wave: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        power = torch.stft(wave, 400, 160, window=self.hann, return_complex=True)[..., :-1].abs() ** 2
        log = (self.filters.T @ power).clamp(min=1e-10).log10()
        log = (torch.maximum(log, log.amax(dim=(1, 2), keepdim=True) - 8.0) + 4.0) / 4.0
        if lengths is not None:  # faster-whisper pads features with zeros, OpenAI pads the audio: learn both
            frame = torch.arange(log.shape[-1], device=self.device)
            padded = (frame >= (lengths * 100)[:, None]) & (torch.rand(len(lengths), 1, device=self.device) < 0.5)
            log = log.masked_fill(padded[:, None], 0.0)
        return log
