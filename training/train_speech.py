"""Train the demo speech model: a small English Whisper over the corpus's own vocabulary.

    python train_speech.py OUT [--minutes M]

Writes OUT/demo-whisper-hf, a Hugging Face checkpoint that CTranslate2's converter takes. All speech is read
aloud by eSpeak NG. A CTC loss on the encoder speeds up learning the alignment and is dropped afterwards.

tests/models/demo-whisper is of three runs on one H200, each of which resumed the last:

    --minutes 7.7 --short 1.0 --batch 128 --peak 1.5e-3
    --minutes 7.5 --short 0.25 --batch 96 --peak 7e-4 --utterances 60000
    --minutes 7.9 --short 0.25 --batch 96 --peak 7e-4 --utterances 60000

and of CTranslate2's `TransformersConverter(…, copy_files=["tokenizer.json", "preprocessor_config.json"])
.convert(…, quantization="int8")`.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import jiwer
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

from speech_data import RATE
from speech_examples import TEXT_VOCABULARY, WINDOW, Examples, speak, train_tokenizer


def build(tokenizer: Tokenizer, device: str) -> WhisperForConditionalGeneration:
    eot, sot = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|startoftranscript|>")
    config = WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(),
        num_mel_bins=80,
        d_model=256,
        encoder_layers=4,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        max_source_positions=1500,
        max_target_positions=448,
        decoder_start_token_id=sot,
        bos_token_id=eot,
        eos_token_id=eot,
        pad_token_id=eot,
        suppress_tokens=[],
        begin_suppress_tokens=[eot],
        dropout=0.0,
    )
    return WhisperForConditionalGeneration(config).to(device)


def encode(encoder, mel: torch.Tensor) -> torch.Tensor:
    """Whisper's encoder over any window up to 30 s; Hugging Face's own forward insists on exactly 30."""
    hidden = F.gelu(encoder.conv2(F.gelu(encoder.conv1(mel)))).transpose(1, 2)
    hidden = hidden + encoder.embed_positions.weight[: hidden.shape[1]]
    for layer in encoder.layers:
        hidden = layer(hidden, attention_mask=None)
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    return encoder.layer_norm(hidden)


def train(model, examples: Examples, minutes: float, batch: int, peak: float, short: float, device: str) -> None:
    """Most steps see 10 s windows, which are cheap; the last share sees the full 30 s."""
    ctc_head = torch.nn.Linear(256, TEXT_VOCABULARY + 1).to(device)
    parameters = [*model.parameters(), *ctc_head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=peak, betas=(0.9, 0.98), weight_decay=0.01)
    rng, started, step = random.Random(time.time()), time.time(), 0
    while (progress := (time.time() - started) / (minutes * 60)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1, (step + 1) / 300) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        window = 10 if progress < short else WINDOW
        mel, inputs, targets, texts = examples.batch(rng, batch if window == WINDOW else 2 * batch, window)
        with torch.autocast(device, dtype=torch.bfloat16):
            encoded = encode(model.model.encoder, mel)
            decoded = model.model.decoder(input_ids=inputs, encoder_hidden_states=encoded).last_hidden_state
            logits = model.proj_out(decoded)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-100)
        spoken = [i for i, text in enumerate(texts) if text]
        pooled = F.avg_pool1d(encoded[spoken].float().transpose(1, 2), 2).transpose(1, 2)
        log_probs = ctc_head(pooled).log_softmax(-1).transpose(0, 1)
        ctc = F.ctc_loss(
            log_probs,
            torch.tensor([t + 1 for i in spoken for t in texts[i]], device=device),
            torch.full((len(spoken),), log_probs.shape[0], dtype=torch.long),
            torch.tensor([len(texts[i]) for i in spoken]),
            zero_infinity=True,
        )
        optimizer.zero_grad()
        (loss + 0.3 * ctc).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 200 == 0:
            print(
                f"step {step} window {window} loss {loss.item():.4f} ctc {ctc.item():.4f} {time.time() - started:.0f}s",
                flush=True,
            )
        step += 1
    print(f"{step} steps, loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def word_error_rate(model, examples: Examples, count: int, device: str) -> float:
    """Greedy decoding of single clean utterances."""
    said, heard = [], []
    control, meta = examples.id, examples.meta[-count:]
    for start in range(0, count, 64):
        group = meta[start : start + 64]
        wave = torch.zeros(len(group), WINDOW * RATE, device=device)
        for row, (offset, samples, *_) in enumerate(group):
            wave[row, :samples] = examples.audio[offset : offset + samples].float() / 32768
        encoded = model.model.encoder(examples.mel(wave)).last_hidden_state
        ids = torch.tensor(
            [[control["<|startoftranscript|>"], control["<|notimestamps|>"]]] * len(group), device=device
        )
        for _ in range(60):
            hidden = model.model.decoder(input_ids=ids, encoder_hidden_states=encoded).last_hidden_state[:, -1]
            ids = torch.cat([ids, model.proj_out(hidden).argmax(-1, keepdim=True)], 1)
        for row, (_, _, words, _, _) in zip(ids.tolist(), group):
            stop = row.index(control["<|endoftext|>"]) if control["<|endoftext|>"] in row else len(row)
            said.append(" ".join(words))
            heard.append(examples.tokenizer.decode(row[2:stop]))
    return jiwer.wer(said, heard)


def save(model, tokenizer: Tokenizer, out: Path) -> None:
    model.generation_config.update(
        no_timestamps_token_id=tokenizer.token_to_id("<|notimestamps|>"),
        is_multilingual=False,
        alignment_heads=[[1, head] for head in range(4)],
        suppress_tokens=[],
        max_length=448,
        begin_suppress_tokens=[tokenizer.token_to_id("<|endoftext|>")],
    )
    model.half().save_pretrained(out)
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "<|endoftext|>",
                "bos_token": "<|endoftext|>",
                "pad_token": "<|endoftext|>",
                "unk_token": "<|endoftext|>",
                "model_max_length": 448,
            },
            indent=1,
        )
    )
    WhisperFeatureExtractor().save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--utterances", type=int, default=48_000)
    parser.add_argument("--batch", type=int, default=96, help="windows of 30 s a step; twice as many of 10 s")
    parser.add_argument("--peak", type=float, default=1.2e-3, help="peak learning rate")
    parser.add_argument("--short", type=float, default=0.7, help="share of the time spent on 10 s windows")
    parser.add_argument("--resume", type=Path, help="a checkpoint that an earlier run wrote")
    parser.add_argument("--espeak-library")
    parser.add_argument("--espeak-data")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    started, workers = time.time(), os.cpu_count() or 1
    jobs = [
        (
            str(args.scratch / f"speech-{i}.npy"),
            100 + i,
            args.utterances // workers,
            args.espeak_library,
            args.espeak_data,
        )
        for i in range(workers)
    ]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        parts = pool.map(speak, jobs)
    meta, audio, base = [], [], 0
    for path, rows in parts:
        audio.append(torch.from_numpy(np.load(path)))
        meta += [(offset + base, *rest) for offset, *rest in rows]
        base += len(audio[-1])
    print(f"{len(meta)} utterances, {base / RATE / 3600:.1f} h of speech in {time.time() - started:.0f}s", flush=True)
    tokenizer = train_tokenizer()
    held_out = 512 if len(meta) > 4000 else 8
    examples = Examples(tokenizer, torch.cat(audio).to(device), meta[:-held_out], device)
    model = build(tokenizer, device)
    if args.resume:
        model.load_state_dict(
            WhisperForConditionalGeneration.from_pretrained(args.resume, dtype=torch.float32).state_dict()
        )
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    train(model, examples, args.minutes, args.batch, args.peak, args.short, device)
    examples.meta = meta
    print(
        f"word error rate on held-out utterances {word_error_rate(model, examples, held_out, device):.4f}", flush=True
    )
    args.out.mkdir(parents=True, exist_ok=True)
    save(model, tokenizer, args.out / "demo-whisper-hf")


if __name__ == "__main__":
    main()
