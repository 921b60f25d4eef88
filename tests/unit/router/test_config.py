import pytest
from pydantic import ValidationError

from services.router.config import RouterSettings

MODELS = [{"name": "m", "tier": "fast", "context_tokens": 1}]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:6379",
        "127.0.0.1:6379",
        "redis://127.0.0.1:port/0",
        "redis://127.0.0.1/0?protocol=3",
        "redis://127.0.0.1/0?decode_responses=true",
    ],
)
def test_an_invalid_redis_url_is_refused(url: str):
    with pytest.raises(ValidationError) as refused:
        RouterSettings(models=MODELS, redis_url=url)
    assert [error["loc"] for error in refused.value.errors()] == [("redis_url",)]


@pytest.mark.parametrize("url", ["", "redis://127.0.0.1:6379/0", "rediss://redis.example:6380", "unix:///run/redis"])
def test_a_valid_redis_url_is_accepted(url: str):
    assert RouterSettings(models=MODELS, redis_url=url).redis_url.get_secret_value() == url
