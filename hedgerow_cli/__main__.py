"""`python -m hedgerow_cli` is `hedgerow`."""

from hedgerow_cli import main

main()
