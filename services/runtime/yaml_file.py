"""YAML from a file that others write, and that a service may read again while it runs."""

from __future__ import annotations

from typing import IO, Any

import yaml


def parse(source: str | IO[str]) -> Any:
    """The value of a text or an open file. Raises `yaml.YAMLError` or ValueError, whatever is wrong with it.

    PyYAML itself raises what its constructors happen to raise for a value that is none of its tag's, for example
    KeyError for `!!bool maybe` and AttributeError for `!!timestamp soon`.
    """
    try:
        return yaml.safe_load(source)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (LookupError, AttributeError, TypeError) as error:
        raise ValueError(f"a value that is none of its tag's ({type(error).__name__})") from None
