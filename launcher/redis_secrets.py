"""The secrets of a mesh with a Redis: Redis' password, and the key with which the cache encrypts its entries.

A folder keeps both (`redis.password`, `cache.key`), as one of certificates keeps its CA: they are made once, and stay.
Of them each process gets what it needs into the folder of its identity:

    redis/redis.conf       `requirepass`, for `redis-server redis.conf …`
    <service>/redis.yaml   for `HEDGEROW_<SERVICE>_CONFIG`: the URL with the password; for the cache its key, too
"""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from pathlib import Path
from urllib.parse import urlsplit

from hedgerow.identities import REDIS
from launcher.certificate_authority import write_file

SHARING = ("cache", "router", "gateway")  # their replicas share state on Redis
CONFIG, SETTINGS = "redis.conf", "redis.yaml"
_PASSWORD, _KEY = "redis.password", "cache.key"
_BYTES = 32


def write_redis_secrets(folder: Path, url: str) -> list[Path]:
    """Make the secrets that `folder` does not have, and write what each identity gets of them. Returns those files.

    `url` is where services find Redis, without a password: `rediss://redis.hedgerow:6379/0?ssl_ca_certs=/tls/ca.crt`.
    Raises ValueError where it cannot be used."""
    with_password = url_with(password := _kept(folder / _PASSWORD, secrets.token_hex(_BYTES)), url)
    key = _kept(folder / _KEY, b64encode(secrets.token_bytes(_BYTES)).decode())
    settings_by_service = {service: {"redis_url": with_password} for service in SHARING}
    settings_by_service["cache"]["encryption_key"] = key
    config = folder / REDIS / CONFIG
    _write(config, f"requirepass {password}\n", 0o640)  # its image runs as another user, of the same group
    for service, settings in settings_by_service.items():
        _write(folder / service / SETTINGS, "".join(f"{name}: {json.dumps(text)}\n" for name, text in settings.items()))
    return [config, *(folder / service / SETTINGS for service in settings_by_service)]


def url_with(password: str, url: str) -> str:
    """The URL of a Redis with its password. Raises ValueError where it is none, or names a user or a password."""
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("redis://HOST:PORT/DB or rediss://HOST:PORT/DB, without a user and a password")
    return parts._replace(netloc=f":{password}@{parts.netloc}").geturl()


def _kept(file: Path, new: str) -> str:
    """The content of the file; where there is none, `new`, which is written to it."""
    if not file.exists():
        _write(file, new + "\n")
    return file.read_text("utf-8").strip()


def _write(file: Path, text: str, mode: int = 0o600) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, text.encode(), mode)
