"""Recipes: each makes a model's folder of files that were downloaded and checked.

They run in a process of their own, `python -m launcher.catalog.convert RECIPE RAW MADE [FORMAT]`: PyTorch and other
large packages are imported here alone. Nothing that was downloaded is executed.
"""
