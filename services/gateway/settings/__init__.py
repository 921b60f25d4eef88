"""Settings of the gateway by subject. `config.py` beside this folder has them all."""
