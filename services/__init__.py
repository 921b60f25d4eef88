"""The services of the mesh: one folder each, one process each, and `runtime`, which they share."""

import os

from services.runtime.process.quiet import silence

silence(os.environ)
