"""`python -m tests.models up …`: the command line, whose demo mesh runs on the fixtures in place of public models."""

from __future__ import annotations

from hedgerow_cli import main
from launcher import demo
from tests.models import FIXTURES

demo.public_models = lambda: FIXTURES  # type: ignore[assignment]
demo.PULLED = ()  # type: ignore[assignment]
main()
