"""Makes a verdict folder of labelled pairs. Needs the extra `embedder`; the service that serves imports none of it."""
