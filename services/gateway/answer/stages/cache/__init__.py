"""The cache stage and its parts: keys of questions, the L1 cache, the store after an answer, verification."""
