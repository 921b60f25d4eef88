"""Why the cache has no say, as stable words: `make docs` writes their table from here."""

from __future__ import annotations

from services.gateway.labels import Label


class Bypassed(Label):
    """Why the cache was left out, or had only this very question looked up (`CacheReport.reason`)."""

    REQUEST = "request", "the request says so: `cache.bypass`"
    TOOLS = "tools", "it has tools or their results"
    PREFIX = "prefix", "it continues a text"
    LOGPROBS = "logprobs", "it wants log-probabilities, which are not stored"
    PROVIDER = "provider", "it wants several answers, sound, files or searches (`n`, `modalities`, …)"
    UNASKED = "unasked", "cached answers were not requested: `hits.others`, `cache.use`"
    NO_USER = "no_user", "it names no end user, and answers are shared per end user: `hits.scope`, `cache.scope`"
    SAMPLED = "sampled", "its `temperature` is above 0: `hits.sampled`"
    TIME_BOUND = "time_bound", "it asks about now, today, the latest: `hits.time_bound`"
    PERSONAL = "personal", "it asks about the user's own records (my order, my bill): `hits.personal`"
    PRIVATE = "private", "the guard found secrets or personal data, or was not done"
    INCOMPLETE = "incomplete", "a picture or recording of the question is missing"
    TOO_LARGE = "too_large", "the cache does not store questions of this size or shape"
    NO_CACHE = "no_cache", "the gateway has no cache service"
