"""Which replica has a prompt's prefix in its key-value cache, estimated from the prompts that were sent to it.

An engine that reuses the keys and values of a shared prompt prefix (vLLM's automatic prefix caching) saves the time of
reading it again, but only on the replica that has read it. So each replica's memory is followed from what was sent to
it: prompts are cut into blocks, each block's hash also covers all blocks before it, and a replica that was sent a block
lately is taken to have it. The method is that of SGLang's router and of llm-d's prefix scorer, in their approximate
form (https://github.com/sgl-project/sglang, https://llm-d.ai/docs/architecture).

The prefixes of a tenant's prompts must not be visible to other tenants. So engines keep prompts of different salts
apart, and so do the blocks' hashes here.

For a prefix that no replica has, rendezvous hashing (Thaler and Ravishankar, 1998) has every gateway choose the same
replica, without communication.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain

from cachetools import LRUCache

from hedgerow.llm.v1 import llm_pb2

BLOCK_BYTES = 256  # about 64 tokens of English; prompts shorter than one have no prefix to share
_MOST_BLOCKS = 64  # of one prompt that are looked at: 16 KiB
_MEMORY_BLOCKS = 16_384  # of one replica: 4 MiB of prompts, about what a small engine's cache holds

Blocks = Sequence[bytes]


def blocks(parts: Iterable[str], salt: str) -> Blocks:
    """The digests of a prompt's full blocks, each over all of the prompt up to its end. `parts` in the prompt's order;
    where one ends counts. Prompts with different salts have no block in common."""
    digest, left, found = hashlib.blake2b(salt.encode(), digest_size=8), b"", list[bytes]()
    for part in parts:
        left += part.encode() + b"\0"
        while len(left) >= BLOCK_BYTES:
            if len(found) == _MOST_BLOCKS:
                return found
            digest.update(left[:BLOCK_BYTES])
            left = left[BLOCK_BYTES:]
            found.append(digest.digest())
    return found


def of_request(request: llm_pb2.GenerateRequest) -> Blocks:
    """Those of what a model is asked: templates put tools first."""
    parts = chain((tool.parameters for tool in request.tools), (message.content for message in request.messages))
    return blocks(parts, request.cache_salt)


class Prefixes:
    """The prompts that one replica was sent lately."""

    def __init__(self, most_blocks: int = _MEMORY_BLOCKS):
        self._known: LRUCache[bytes, None] = LRUCache(most_blocks)

    def __len__(self) -> int:
        """In blocks."""
        return len(self._known)

    def sent(self, prompt: Blocks) -> None:
        """The replica reads this prompt."""
        for block in reversed(prompt):  # the beginning is the last to be forgotten
            self._known[block] = None

    def matched(self, prompt: Blocks) -> int:
        """How many blocks, from the first on, the replica has read before."""
        for number, block in enumerate(prompt):
            if block not in self._known:
                return number
        return len(prompt)


def rendezvous(block: bytes, name: str) -> bytes:
    """The claim of `name` to a block that no replica has; the highest wins."""
    return hashlib.blake2b(block + name.encode(), digest_size=8).digest()
