"""What becomes of a prompt before a model reads it: pure rules over text and messages."""
