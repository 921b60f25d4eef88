"""Answers that were given before: exact, semantic, and the embeddings behind them."""
