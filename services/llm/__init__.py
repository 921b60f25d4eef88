"""The llm service: streamed generation by one model, behind any engine."""
