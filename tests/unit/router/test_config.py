import pytest
from pydantic import ValidationError

from services.router.config import RouterSettings

MODELS = [{"name": "m", "tier": "fast", "context_tokens": 1}]


@pytest.mark.parametrize("url", ["http://127.0.0.1:6379", "127.0.0.1:6379", "redis://127.0.0.1:port/0"])
def test_what_is_no_address_of_a_redis_stops_the_start(url: str):
    with pytest.raises(ValidationError) as refused:
        RouterSettings(models=MODELS, redis_url=url)
    assert [error["loc"] for error in refused.value.errors()] == [("redis_url",)]


@pytest.mark.parametrize("url", ["", "redis://127.0.0.1:6379/0", "rediss://redis.example:6380", "unix:///run/redis"])
def test_what_is_one_is_taken(url: str):
    assert RouterSettings(models=MODELS, redis_url=url).redis_url.get_secret_value() == url
