"""Prompts before a model reads them: pure rules over text and messages."""
