"""How large a request may be, from the gateway inwards: the defaults of every service's settings come from here.

No service behind the gateway may refuse an admitted request for its size or shape; else one tenant's large request
would look like a broken service (tests/contract/test_limits.py). To raise a limit of the gateway, raise those behind
it, too.
"""

from __future__ import annotations

import re

from hedgerow.channel import MAX_MESSAGE_BYTES

CONTENT_BYTES = 256 * 1024  # of all messages of a request together
# The same where the model's own context is the limit: 4 million tokens of English, and as many messages as Anthropic's
# API takes.
LONG_CONTENT_BYTES, LONG_MESSAGES = 16 * 1024 * 1024, 100_000
# Of a request to a model: what was read of it, its own words as they came (26 MiB by HTTP), and those of their fields
# that nothing here reads, once more, escaped to ASCII (three times as long at most).
MODEL_MESSAGE_BYTES = 128 * 1024 * 1024
HTTP_BODY_BYTES = 27_262_976  # a recording of 25 MiB with what is around it
HTTP_TEXT_BODY_BYTES = 8 * 1024 * 1024  # 2 MiB of text that JSON escapes
# Of a JSON body: all its values (100,000 messages in parts have 600,000), and the elements of one array or the members
# of one object, the conversation's own array apart.
JSON_VALUES, JSON_ITEMS = 1_000_000, 10_000
PICTURES_BYTES = 4_000_000  # of all pictures of a request together; with the rest they fit one message
PICTURE_PIXELS = 16_000_000  # of one, which takes up to 16 bytes for each while it is decoded
SPEECH_BYTES = 256 * 1024  # of one message of live audio: 8 s of 16-bit mono at 16 kHz, and a few milliseconds of work
STOPS, STOP_CHARACTERS = 64, 256  # the contract's
PARTS, TOOL_CALLS = 256, 128  # of one message: each is looked at on the event loop, and may be a few bytes
TOOLS, LOGIT_BIASES, TOP_LOGPROBS = 512, 300, 20  # the contract's
TOP_K, STOP_TOKENS = 1_000_000, 64  # the contract's; no vocabulary has as many tokens
TOKENS = 2**31 - 1  # of a context or an answer: what the contract's fields hold
MESH_TOOLS = 32  # the contract's
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")  # the contract's, and that of Anthropic's API
MESH_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # the contract's: every provider's API allows these names

CONSTRAINT_BYTES = 32 * 1024  # of a JSON Schema
CONSTRAINT_DEPTH = 32  # vLLM takes 64 levels

# The cache is sent the question, and with it what a recording says (an hour of speech has 60 KB), a digest for each
# picture, the constraint and the tenant's name.
QUESTION_BYTES = 512 * 1024

assert CONTENT_BYTES + CONSTRAINT_BYTES < QUESTION_BYTES < MAX_MESSAGE_BYTES
assert PICTURES_BYTES < MAX_MESSAGE_BYTES
assert LONG_CONTENT_BYTES + PICTURES_BYTES + 4 * HTTP_BODY_BYTES < MODEL_MESSAGE_BYTES
