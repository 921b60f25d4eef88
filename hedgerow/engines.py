"""The engines of llm services by their names, which a mesh file and the services' settings have alike."""

from __future__ import annotations

from typing import Final

PROVIDER_ENGINES: Final = ("openai", "anthropic")  # call an API by HTTP
ENGINES: Final = ("vllm", *PROVIDER_ENGINES)  # each has a group of settings of its name
NAME_PATTERN: Final = rf"^({'|'.join(ENGINES)}|[\w.]+:\w+)$"  # or `package.module:function`
