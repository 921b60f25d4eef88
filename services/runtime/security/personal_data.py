"""Rules for personal data: mail addresses, telephone numbers, cards, bank accounts, national identity numbers.

Check digits decide for numbers that have them, so an order number is not a card. Sources: ISO/IEC 7812 (cards), ISO
13616 (IBAN), ITU-T E.164 (telephone), and the countries' publications of their identity numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from services.runtime.security.private_data import Accept, Rule

_IBAN_LENGTHS = {
    **{"AT": 20, "BE": 16, "BG": 22, "CH": 21, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "EE": 20, "ES": 24, "FI": 18},
    **{"FR": 27, "GB": 22, "GR": 27, "HR": 21, "HU": 28, "IE": 22, "IS": 26, "IT": 27, "LI": 21, "LT": 20, "LU": 20},
    **{"LV": 21, "MC": 27, "MT": 31, "NL": 18, "NO": 15, "PL": 28, "PT": 25, "RO": 24, "SE": 24, "SI": 19, "SK": 24},
    **{"TR": 26, "UA": 29, "SA": 24, "AE": 23, "BR": 29, "IL": 23},
}
_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_CN_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def _digits(text: str) -> list[int]:
    return [int(sign) for sign in text if sign.isdigit()]


def _luhn(digits: Sequence[int]) -> bool:
    doubled = [digit if at % 2 == 0 else digit * 2 - 9 * (digit > 4) for at, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def _is_card(found: re.Match[str]) -> bool:
    digits = _digits(found["it"])
    return 13 <= len(digits) <= 19 and digits[0] in (2, 3, 4, 5, 6) and len(set(digits)) > 1 and _luhn(digits)


def _is_iban(found: re.Match[str]) -> bool:
    signs = found["it"].replace(" ", "").upper()
    if len(signs) != _IBAN_LENGTHS.get(signs[:2]):
        return False
    return int("".join(str(int(sign, 36)) for sign in signs[4:] + signs[:4])) % 97 == 1


def _is_telephone(found: re.Match[str]) -> bool:
    return 7 <= len(_digits(found["it"])) <= 15


def _is_introduced_telephone(found: re.Match[str]) -> bool:
    """Whether the words before it introduce a telephone number."""
    return bool(
        _INTRODUCES_TELEPHONE.search(found.string, max(0, found.start() - 40), found.start())
    ) and _is_telephone(found)


def _is_dni(found: re.Match[str]) -> bool:
    """Spain's identity number of citizens and of foreigners."""
    signs = found["it"].replace("-", "").upper()
    number = signs[:-1].translate(str.maketrans("XYZ", "012"))
    return _DNI_LETTERS[int(number) % 23] == signs[-1]


def _is_nir(found: re.Match[str]) -> bool:
    """France's identity number."""
    signs = found["it"].replace(" ", "").upper().replace("2A", "19").replace("2B", "18")
    return 97 - int(signs[:13]) % 97 == int(signs[13:])


def _is_cpf(found: re.Match[str]) -> bool:
    """Brazil's identity number."""
    digits = _digits(found["it"])
    for length in (9, 10):
        total = sum(digit * (length + 1 - at) for at, digit in enumerate(digits[:length]))
        if total * 10 % 11 % 10 != digits[length]:
            return False
    return len(set(digits)) > 1


def _is_steuer_id(found: re.Match[str]) -> bool:
    """Germany's tax number: ISO 7064, MOD 11,10."""
    *number, last = _digits(found["it"])
    product = 10
    for digit in number:
        product = ((digit + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == last


def _is_resident_id(found: re.Match[str]) -> bool:
    """China's identity number: GB 11643."""
    signs = found["it"].upper()
    total = sum(int(sign) * weight for sign, weight in zip(signs, _CN_WEIGHTS, strict=False))
    return "10X98765432"[total % 11] == signs[-1]


def _is_ean(found: re.Match[str]) -> bool:
    """Switzerland's identity number, whose check digit is that of an EAN."""
    digits = _digits(found["it"])
    return sum(digit * (3 if at % 2 else 1) for at, digit in enumerate(digits)) % 10 == 0


def _personal(name: str, label: str, pattern: str, accept: Accept | None = None, *hints: str) -> Rule:
    return Rule(name, "personal", label, re.compile(pattern, re.VERBOSE), hints, accept)


# Rules that begin with a digit search for the digit, which `re` does fast, and then check the text before it.
_DIGIT = r"[0-9](?<![\w.+,-][0-9])"
_NOT_BEFORE, _NOT_FOLLOWED = r"(?<![\w.+-])", r"(?![\w-]|\.\w)"
_BETWEEN_DIGITS = r"(?:[ ]?\(|\)[ .-]?|[ .\-/])?"  # between digits of a telephone number: never a point with a blank
_INTRODUCES_TELEPHONE = re.compile(
    r"(?:phone|mobile?|cell|fax|call|dial|whatsapp|t[eé]l[eé]fono?|telefoon|handy|tel|m[oó]vil|ring|電話番号?|电话|手机号?|телефон)"
    r"(?: (?:number|me|us|is|at|on|nr|no|ist|es|est)){0,3}[.:：]? {0,2}$",
    re.IGNORECASE,
)
EMAIL = _personal(
    "email",
    "email",
    r"(?<![\w.+-])(?P<it>[\w+%-]{1,64}(?:\.[\w+%-]{1,64}){0,8}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24})(?![\w-]|\.\w)",
    None,
    "@",
)
CARD = _personal("card", "card", rf"(?P<it>{_DIGIT}[0-9]{{12,18}}){_NOT_FOLLOWED}", _is_card)
CARD_IN_GROUPS = _personal(
    "card",
    "card",
    rf"(?P<it>{_DIGIT}[0-9]{{3}}(?P<gap>[ -])"
    rf"(?:[0-9]{{4}}(?P=gap)[0-9]{{4}}(?P=gap)[0-9]{{1,7}}|[0-9]{{6}}(?P=gap)[0-9]{{5}}))(?![0-9])",
    _is_card,
)
IBAN = _personal(
    "iban", "iban", rf"(?P<it>[A-Z](?<![\w.+-].)[A-Z][0-9]{{2}}(?:[ ]?[A-Z0-9]){{11,27}}){_NOT_FOLLOWED}", _is_iban
)
PHONE_ABROAD = _personal(
    "phone",
    "phone",
    rf"(?P<it>\+(?<![\w.+/-].)[1-9](?:{_BETWEEN_DIGITS}[0-9]){{6,14}})(?![\w]|[.-]\w)",
    _is_telephone,
    "+",
)
PHONE = _personal(
    "phone",
    "phone",
    rf"""(?P<it>[0-9(](?<![\w.+/,:-].)(?:
      (?<=1)[ .-](?:\([2-9][0-9]{{2}}\)[ ]?|[2-9][0-9]{{2}}[.-])[0-9]{{3}}[ .-][0-9]{{4}}  # North America
    | (?<=\()[2-9][0-9]{{2}}\)[ ]?[0-9]{{3}}[ .-][0-9]{{4}}
    | (?<=[2-9])[0-9]{{2}}[.-][0-9]{{3}}[ .-][0-9]{{4}}
    | (?:(?<=\()0[0-9]{{1,5}}\)|(?<=0)[0-9]{{1,5}})[ /-]
      (?=(?:[0-9][ /-]?){{5,11}}(?![0-9]))[0-9]{{2,8}}(?:[ /-][0-9]{{2,8}}){{0,4}}
    )){_NOT_FOLLOWED}""",
    _is_telephone,
)
PHONE_NAMED = _personal(
    "phone",
    "phone",
    rf"(?P<it>[0-9(](?<![\w.+-].)[0-9]?(?:{_BETWEEN_DIGITS}[0-9]){{6,14}})(?![\w]|[.-]\w)",
    _is_introduced_telephone,
)
PHONE_MAINLAND = _personal(
    "phone", "phone", rf"(?P<it>1(?<![0-9A-Za-z_.+-].)[3-9][0-9](?:[ -]?[0-9]{{4}}){{2}}){_NOT_FOLLOWED}"
)


def _national(pattern: str, accept: Accept | None = None, *hints: str) -> Rule:
    return _personal("national_id", "national id", rf"(?P<it>{pattern}){_NOT_FOLLOWED}", accept, *hints)


NATIONAL = (
    _national(
        rf"{_DIGIT}(?<!9)[0-9]{{2}}(?<!000)(?<!666)-(?!00)[0-9]{{2}}-(?!0000)[0-9]{{4}}", None, "-"
    ),  # United States
    _national(
        r"[A-CEGHJ-PR-TW-Z](?<![\w.+-].)[A-CEGHJ-NPR-TW-Z][ ]?[0-9]{2}[ ]?[0-9]{2}[ ]?[0-9]{2}[ ]?[A-D]"
    ),  # United Kingdom
    _national(r"[0-9XYZ](?<![\w.+-].)[0-9]{7}(?:(?<=[XYZ][0-9]{7})|(?<=[0-9]{8}))-?[A-Z]", _is_dni),
    _national(
        r"[12](?<![\w.+-].)[ ]?[0-9]{2}[ ]?(?:0[1-9]|1[0-2]|[2-9][0-9])[ ]?(?:[0-9]{2}|2[AB])"
        r"[ ]?[0-9]{3}[ ]?[0-9]{3}[ ]?[0-9]{2}",
        _is_nir,
    ),
    _national(r"[A-Z](?<![\w.+-].)[A-Z]{5}[0-9]{2}[A-EHLMPRST][0-9]{2}[A-Z][0-9]{3}[A-Z]"),  # Italy
    _national(rf"{_DIGIT}[0-9]{{2}}\.[0-9]{{3}}\.[0-9]{{3}}-[0-9]{{2}}", _is_cpf, "-"),
    _national(
        rf"{_DIGIT}[0-9][ ][0-9]{{3}}[ ][0-9]{{3}}[ ][0-9]{{3}}|(?<=(?:ID|Nr)[: ])[0-9]{{11}}|(?<=ID:[ ])[0-9]{{11}}",
        _is_steuer_id,
    ),
    _national(rf"{_DIGIT}[0-9]{{5}}(?:19|20)[0-9]{{2}}(?:0[1-9]|1[0-2])[0-3][0-9][0-9]{{3}}[0-9Xx]", _is_resident_id),
    _national(r"756(?<![\w.+-]...)\.[0-9]{4}\.[0-9]{4}\.[0-9]{2}", _is_ean, "756."),
)
PERSONAL = (EMAIL, IBAN, CARD, CARD_IN_GROUPS, *NATIONAL, PHONE_ABROAD, PHONE, PHONE_NAMED, PHONE_MAINLAND)
