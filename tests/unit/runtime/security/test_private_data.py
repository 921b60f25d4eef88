from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.security import personal_data
from services.runtime.security.credentials import SECRETS
from services.runtime.security.mask_all import mask_all
from services.runtime.security.personal_data import PERSONAL
from services.runtime.security.private_data import Names, Rule, find, masked

ALL = (*SECRETS, *PERSONAL)
PLAIN = st.text(alphabet=st.sampled_from("abc é。\n .,!?:-()[]{}\"'ßяж漢#=+"), max_size=40)
THINGS = {
    "email": ["anna@example.com", "j.o+x@mail.sub.example.co.uk"],
    "phone": ["+49 30 1234567", "(212) 555-0100", "030 1234567"],
    "card": ["4111 1111 1111 1111", "378282246310005", "5500-0000-0000-0004"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"],
    "national id": ["123-45-6789", "12345678Z", "529.982.247-25", "756.9217.0769.85", "11010519491231002X"],
    "secret": ["ghp_abcdefghijklmnopqrstuvwxyz0123456789", "AKIAIOSFODNN7EXAMPLE", "sk-ant-api03-abcdefghijklmnopqrst"],
}
THING = st.sampled_from([(label, thing) for label, things in THINGS.items() for thing in things])


@pytest.mark.parametrize(("label", "thing"), [(label, thing) for label, things in THINGS.items() for thing in things])
def test_each_kind_of_thing_is_found_in_a_sentence(label: str, thing: str):
    assert mask_all(f"It is {thing}, as you know.") == f"It is [{label} 1], as you know."


# The examples of the IBAN registry (SWIFT, ISO 13616), one for each country that is known here.
IBANS = """
AT611904300234573201 BE68539007547034 BG80BNBG96611020345678 CH9300762011623852957 CY17002001280000001200527600
CZ6508000000192000145399 DE89370400440532013000 DK5000400440116243 EE382200221020145685 ES9121000418450200051332
FI2112345600000785 FR1420041010050500013M02606 GB29NWBK60161331926819 GR1601101250000000012300695
HR1210010051863000160 HU42117730161111101800000000 IE29AIBK93115212345678 IS140159260076545510730339
IT60X0542811101000000123456 LI21088100002324013AA LT121000011101001000 LU280019400644750000 LV80BANK0000435195001
MC5811222000010123456789030 MT84MALT011000012345MTLCAST001S NL91ABNA0417164300 NO9386011117947
PL61109010140000071219812874 PT50000201231234567890154 RO49AAAA1B31007593840000 SE4550000000058398257466
SI56263300012039086 SK3112000000198742637541 TR330006100519786457841326 UA213223130000026007233566001
SA0380000000608010167519 AE070331234567890123456 BR1800360305000010009795493C1 IL620108000000099999999
"""


@pytest.mark.parametrize("iban", IBANS.split())
def test_a_bank_account_of_each_country_is_found(iban: str):
    assert mask_all(f"Pay to {iban}, please.") == "Pay to [iban 1], please."


def test_no_country_of_bank_accounts_goes_untested():
    assert {iban[:2] for iban in IBANS.split()} == personal_data._IBAN_LENGTHS.keys()


@pytest.mark.parametrize(
    "text",
    [
        "Order 1234567890 of 2026-11-22 costs 1,234.50.",
        "4111 1111 1111 1112 is no card, and 1.2.3.4 no telephone.",
        "192.168.100.200:8080 answers in 3.14159265358979 ms.",
        "The password is required. What is your password?",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "def key(token: str) -> bool: ...",
        "Version 10.15.7 (build 19H2026), pages 100-200, room 12-34.",
        "Rate it 5/5, call back between 9 and 10.",
        "ISBN 978-3-16-148410-0",
        "https://example.com/a?b=1",
    ],
)
def test_text_that_only_resembles_private_data_stays(text: str):
    assert mask_all(text) == text


@given(PLAIN, THING, PLAIN)
def test_masking_changes_only_the_private_data(before: str, thing: tuple[str, str], behind: str):
    label, it = thing
    text = f"{before} {it} {behind}"
    found = find(text, ALL)
    assert masked(text, found, Names()).replace(f"[{label} 1]", it, 1) == text or len(found) > 1
    assert any(each.start <= len(before) + 1 and each.end >= len(before) + 1 + len(it) for each in found)


@given(st.lists(st.one_of(PLAIN, THING.map(lambda each: f" {each[1]} ")), max_size=8).map("".join))
def test_masked_text_has_no_private_data(text: str):
    once = mask_all(text)
    assert mask_all(once) == once


@given(PLAIN)
def test_text_without_private_data_is_unchanged(text: str):
    assert mask_all(text) == text


def test_the_same_thing_has_the_same_name_throughout():
    names, texts = Names(), ["a@example.com, b@example.com", "b@example.com"]
    assert [masked(text, find(text, ALL), names) for text in texts] == ["[email 1], [email 2]", "[email 2]"]


@pytest.mark.parametrize("rule", ALL, ids=[f"{at}-{rule.name}" for at, rule in enumerate(ALL)])
def test_no_rule_repeats_anything_without_a_bound_so_no_text_makes_more_than_linear_work(rule: Rule):
    parsed = re._parser.parse(rule.pattern.pattern, rule.pattern.flags)  # type: ignore[attr-defined]
    assert parsed.getwidth()[1] < 20_000
