"""The catalogue of public models: where they come from, how they are placed on this machine, and where they are.

`pull` gets models, `path` says where one is, `missing` which are not here. The data is in catalog.toml.
"""

from launcher.catalog.errors import CatalogError, NotPulled, UnknownModel
from launcher.catalog.pulling import missing, pull, remove
from launcher.catalog.records import CatalogEntry, entries, entry
from launcher.catalog.steps import Report, Step
from launcher.catalog.store import cache_folder, damage, home, is_whole, path, read_manifest

__all__ = [
    "CatalogEntry",
    "CatalogError",
    "NotPulled",
    "Report",
    "Step",
    "UnknownModel",
    "cache_folder",
    "damage",
    "entries",
    "entry",
    "home",
    "is_whole",
    "missing",
    "path",
    "pull",
    "read_manifest",
    "remove",
]
