"""A service's process keeps what it writes to itself."""

from __future__ import annotations

import os
import resource

from hedgerow.private import UMASK


def keep_to_oneself() -> None:
    """From now on: files for their owner alone, and no memory of a crashed process on disk, for prompts are in it.

    The hard limit of core dumps stays: `prlimit --core=unlimited --pid …` turns them on for one process.
    """
    os.umask(UMASK)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
