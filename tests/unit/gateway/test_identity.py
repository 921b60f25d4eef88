from __future__ import annotations

import hashlib

import pytest

from services.gateway.errors import KeyUnknown
from services.gateway.identity import LOCAL, Identity

KEYED = Identity({hashlib.sha256(b"sesame").hexdigest(): "acme"})


def test_without_keys_there_is_one_tenant():
    assert Identity({}).tenant(None) == LOCAL


def test_a_known_key_names_its_tenant():
    assert KEYED.tenant("Bearer sesame") == "acme"


@pytest.mark.parametrize("header", [None, "", "sesame", "Basic sesame", "Bearer ", "Bearer wrong"])
def test_anything_else_is_refused(header: str | None):
    with pytest.raises(KeyUnknown):
        KEYED.tenant(header)
