"""`python -m tests.integration.catalog_command FILE …`: the command line with the catalogue in FILE."""

from __future__ import annotations

import sys
from pathlib import Path

from hedgerow_cli import main
from launcher.catalog import records

records.FILE = Path(sys.argv.pop(1))
main()
