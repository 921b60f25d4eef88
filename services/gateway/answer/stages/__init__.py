"""The stages of an answer: one file for each, or one package. `registry.py` beside this package lists them in order."""
