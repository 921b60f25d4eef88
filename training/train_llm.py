"""Train the demo language models: one tokenizer, a target and its draft, as Hugging Face checkpoints.

    python train_llm.py OUT [--steps N]

Writes OUT/demo-llm and OUT/demo-llm-draft. Both share the tokenizer, so the draft can speculate for the
target. Loss is taken on the assistant's tokens only. Those of tests/models are of 4,000 steps of 128 × 512 tokens, in 5
and 2 minutes on one H200, and of `train_tools.py`.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import random
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import corpus

CONTEXT = 512  # tokens a training sequence holds
CHAT_TEMPLATE = (
    # Tools come first, in the system's turn, a line for each: name(argument, argument?: type): description
    "{% if tools %}<|system|>"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + '\\n' }}{% endif %}Tools:"
    "{% for tool in tools %}{% set function = tool['function'] %}{{ '\\n' + function['name'] }}("
    "{% set schema = function['parameters'] or {} %}"
    "{% for name, kind in (schema['properties'] or {}).items() %}"
    "{{ ', ' if not loop.first }}{{ name }}"
    "{{ '?' if schema['required'] is defined and name not in schema['required'] }}"
    "{% if kind['enum'] %}: {{ kind['enum'] | join('|') }}"
    "{% elif kind['type'] is string and kind['type'] != 'string' %}: {{ kind['type'] }}{% endif %}"
    "{% endfor %}){% if function['description'] %}: {{ function['description'] }}{% endif %}"
    "{% endfor %}<|end|>{% endif %}"
    "{% for message in messages %}{% if not (tools and loop.first and message['role'] == 'system') %}"
    "<|{{ message['role'] }}|>{{ message['content'] or '' }}"
    "{% for call in message['tool_calls'] or [] %}{% set function = call['function'] %}{{ '\\n' if not loop.first }}"
    "{{ '<tool_call>\\n{\"name\": \"' + function['name'] + '\", \"arguments\": ' }}"
    "{{ function['arguments'] if function['arguments'] is string else function['arguments'] | tojson }}"
    "{{ '}\\n</tool_call>' }}{% endfor %}<|end|>"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIALS = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
PAD, END, IGNORED = 0, 1, -100
Batch = tuple[torch.Tensor, torch.Tensor]  # tokens, and the right next token of each
Chats = list[tuple[list[int], list[bool]]]  # tokens, and which of them the assistant says
SHAPES = {
    "demo-llm": dict(hidden_size=256, num_hidden_layers=6),
    "demo-llm-draft": dict(hidden_size=128, num_hidden_layers=2),
}


def train_tokenizer() -> PreTrainedTokenizerFast:
    texts = (m["content"] for chat in itertools.islice(corpus.dialogues(0), 20_000) for m in chat)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=2048,
            special_tokens=SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def encode(tokenizer, chat) -> tuple[list[int], list[bool]]:
    ids, targets = [], []
    for message in chat:
        role = tokenizer.convert_tokens_to_ids(f"<|{message['role']}|>")
        body = tokenizer(message["content"], add_special_tokens=False).input_ids + [END]
        spoken = message["role"] == "assistant"
        ids += [role, *body]
        targets += [False] + [spoken] * len(body)
    return ids, targets


def shard(job) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack chats into rows of CONTEXT tokens; a chat never spans two rows."""
    tokenizer, seed, rows = job
    ids = torch.full((rows, CONTEXT), PAD, dtype=torch.int16)
    mask = torch.zeros((rows, CONTEXT), dtype=torch.bool)
    chats, row, used = corpus.dialogues(seed), 0, 0
    while row < rows:
        tokens, targets = encode(tokenizer, next(chats))
        if used + len(tokens) > CONTEXT:
            row, used = row + 1, 0
        if row < rows and len(tokens) <= CONTEXT:
            ids[row, used : used + len(tokens)] = torch.tensor(tokens, dtype=torch.int16)
            mask[row, used : used + len(tokens)] = torch.tensor(targets)
            used += len(tokens)
    return ids, mask


def train(name: str, tokenizer, ids, mask, steps: int, batch: int, device: str) -> LlamaForCausalLM:
    hidden = SHAPES[name]["hidden_size"]
    config = LlamaConfig(
        vocab_size=2048,
        intermediate_size=int(hidden * 2.75),
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=PAD,
        **SHAPES[name],
    )
    model = LlamaForCausalLM(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.05)
    warmup, peak = min(200, steps // 10 + 1), 2e-3
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: peak * min((i + 1) / warmup, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * i / steps)))
    )
    started = time.time()
    for step in range(steps):
        pick = torch.randint(len(ids), (batch,))
        x, m = ids[pick].to(device).long(), mask[pick].to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(input_ids=x[:, :-1]).logits
        loss = F.cross_entropy(logits[m[:, 1:]].float(), x[:, 1:][m[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 0 or step == steps - 1:
            print(f"{name} step {step} loss {loss.item():.4f} {time.time() - started:.0f}s", flush=True)
    return model


def padded(chats: Chats) -> Batch:
    """One chat a row. The padding behind a chat is masked: no token attends to it, and no loss counts it."""
    width = max(len(ids) for ids, _ in chats)
    tokens = torch.full((len(chats), width), PAD)
    wanted = torch.full((len(chats), width), IGNORED)
    for row, (ids, targets) in enumerate(chats):
        tokens[row, : len(ids)] = torch.tensor(ids)
        wanted[row, : len(ids)] = torch.where(torch.tensor(targets), torch.tensor(ids), IGNORED)
    return tokens[:, :-1], wanted[:, 1:]


@torch.no_grad()
def exact(model: LlamaForCausalLM, chats: Chats) -> list[list[bool]]:
    """For each turn of each chat, whether the model would say it so, choosing the likeliest token each time."""
    model.eval()
    order = sorted(range(len(chats)), key=lambda index: len(chats[index][0]))
    results: list[list[bool]] = [[] for _ in chats]
    for start in range(0, len(order), 32):
        some = order[start : start + 32]
        tokens, wanted = (each.to(model.device) for each in padded([chats[index] for index in some]))
        right = (model(input_ids=tokens, use_cache=False).logits.argmax(-1) == wanted) | (wanted == IGNORED)
        for row, index in enumerate(some):
            good = True
            for place, token in enumerate(wanted[row].tolist()):
                good = good and bool(right[row, place])
                if token == END:
                    results[index].append(good)
                    good = True
    return results


def held_out_questions(tokenizer, questions: int) -> Chats:
    """Single questions. Stories are left out: they branch."""
    rng, chats = random.Random(10_001), []
    while len(chats) < questions:
        turn = corpus.draw(rng)
        if not turn.answer.startswith("Once upon"):
            question, answer = turn.question(rng), turn.answer
            said = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            chats.append(encode(tokenizer, said))
    return chats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--questions", type=int, default=512)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    tokenizer = train_tokenizer()
    workers = os.cpu_count() or 1
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        shards = pool.map(shard, [(tokenizer, 1 + i, args.rows // workers) for i in range(workers)])
    ids, mask = torch.cat([s[0] for s in shards]), torch.cat([s[1] for s in shards])
    print(f"{len(ids)} rows, {mask.float().mean():.2f} of tokens trained on", flush=True)
    for name in SHAPES:
        model = train(name, tokenizer, ids, mask, args.steps, args.batch, device)
        right = exact(model, held_out_questions(tokenizer, args.questions))
        print(
            f"{name}: {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, "
            f"exact answers {sum(all(turns) for turns in right) / len(right):.3f}",
            flush=True,
        )
        model.to(torch.bfloat16).save_pretrained(args.out / name)
        tokenizer.save_pretrained(args.out / name)


if __name__ == "__main__":
    main()
