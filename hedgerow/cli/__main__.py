"""`python -m hedgerow.cli` is `hedgerow`."""

from hedgerow.cli import main

main()
