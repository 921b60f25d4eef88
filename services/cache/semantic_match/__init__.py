"""Whether a stored answer may be given to a question that is merely alike."""
