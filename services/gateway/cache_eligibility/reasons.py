"""Why the cache has no say, as stable words: `make docs` writes their table from here."""

from __future__ import annotations

from services.gateway.labels import Label


class Bypassed(Label):
    """Why the cache was left out, or had only this very question looked up (`CacheReport.reason`)."""

    REQUEST = "request", "the request says so: `cache.bypass`"
    TOOLS = "tools", "it has tools, or what tools said: its answer is for this conversation alone"
    PREFIX = "prefix", "it goes on with a text that has begun"
    LOGPROBS = "logprobs", "it asks for log-probabilities, which are not kept"
    PROVIDER = "provider", "it asks for several answers, sound, files or searches (`n`, `modalities`, …): not one text"
    UNASKED = "unasked", "stored answers, or those to other wordings, were not asked for: `hits.others`, `cache.use`"
    NO_USER = "no_user", "it names no end user, and stored answers are for one alone: `hits.scope`, `cache.scope`"
    SAMPLED = "sampled", "it asks for an answer that is drawn: a `temperature` above 0; `hits.sampled`"
    TIME_BOUND = "time_bound", "it asks about now, today, the latest of something; `hits.time_bound`"
    PERSONAL = "personal", "it asks about a record of who asks: my order, my bill; `hits.personal`"
    PRIVATE = "private", "the guard has found, or not yet ruled out, secrets or personal data"
    INCOMPLETE = "incomplete", "something of the question was not seen or heard"
    TOO_LARGE = "too_large", "the cache does not keep questions of this size or shape"
    NO_CACHE = "no_cache", "there is no cache service behind this gateway"
