"""Rules for secrets: keys and tokens by the shapes that their makers gave them, and passwords that are named so."""

from __future__ import annotations

import re

from services.runtime.security.private_data import Rule

_LONGEST_KEY = 16_384  # characters of a private key that does not end
_OF_A_KEY = r"[ ][A-Z ]{0,30}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----"
_NOT_BEFORE = r"(?<![A-Za-z0-9_-])"


def _secret(name: str, pattern: str, *hints: str, flags: int = 0) -> Rule:
    return Rule(name, "secret", "secret", re.compile(pattern, re.VERBOSE | flags), hints)


def _token(name: str, prefix: str, pattern: str, hint: str) -> Rule:
    """A prefix that its maker gave it, and many signs."""
    return _secret(name, rf"{_NOT_BEFORE}(?P<it>{prefix}{pattern})(?![A-Za-z0-9])", hint)


# The one rule that reaches over lines: to its end, or, where there is none, over all that such a key may have.
PRIVATE_KEY = _secret(
    "private_key",
    rf"-----BEGIN{_OF_A_KEY}(?:[\s\S]{{0,{_LONGEST_KEY}}}?-----END{_OF_A_KEY}|[\s\S]{{0,{_LONGEST_KEY}}})",
    "-----begin",
)
SECRETS = (
    PRIVATE_KEY,
    _token("anthropic_key", "sk-ant-", r"[A-Za-z0-9_-]{20,200}", "sk-ant-"),
    _token("openai_key", "sk-(?!ant-)", r"(?:proj-|svcacct-)?[A-Za-z0-9_-]{20,200}", "sk-"),
    _token("aws_key", "(?:AKIA|ASIA)", r"[A-Z0-9]{16}", "ia"),
    _token("github_token", "gh[pousr]_", r"[A-Za-z0-9]{30,255}", "gh"),
    _token("github_token", "github_pat_", r"[A-Za-z0-9_]{30,255}", "github_pat_"),
    _token("gitlab_token", "glpat-", r"[A-Za-z0-9_-]{20,60}", "glpat-"),
    _token("google_key", "AIza", r"[A-Za-z0-9_-]{35}", "aiza"),
    _token("slack_token", "xox[abeprs]-", r"[A-Za-z0-9-]{10,200}", "xox"),
    _token("stripe_key", "[sr]k_(?:live|test)_", r"[A-Za-z0-9]{16,200}", "k_"),
    _token("huggingface_token", "hf_", r"[A-Za-z0-9]{30,60}", "hf_"),
    _token("npm_token", "npm_", r"[A-Za-z0-9]{36}", "npm_"),
    _token("jwt", "eyJ", r"[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,1000}", "eyj"),
    _secret(
        "bearer_token",
        r"\bbearer[ ]{1,2}(?P<it>[A-Za-z0-9_\-+/=~]{20,2000}(?:\.[A-Za-z0-9_\-+/=~]{8,2000}){0,2})",
        "bearer",
        flags=re.IGNORECASE,
    ),
    _secret("url_password", r"://[^\s:/@?#。！？]{0,100}:(?P<it>[^\s:/@?#。！？]{1,200})@", "://"),
    _secret(
        "password",
        r"""(?:password|passwd|pwd|passphrase|passwort|kennwort|contraseña|mot[ ]de[ ]passe|senha|пароль|密码|パスワード
        |(?:api|access|secret|private|auth)[_ -]?(?:key|token|secret))["']?
        (?:[ ]?[:=：]>?[ ]{0,4}|[ ](?:is|ist|est|es|é)[:]?[ ](?=["'`“]?[^\s"'`”。！？]{0,80}[0-9_$%&*+=#@!]))
        ["'`“]?(?P<it>(?![\[<{$*.…?])[^\s"'`”,;。！？]{6,200}(?<![.!?…)»’]))""",
        *(
            "passw",
            "pwd",
            "passphrase",
            "kennwort",
            "contraseña",
            "mot de passe",
            "senha",
            "парол",
            "密码",
            "パスワード",
        ),
        *("key", "token", "secret"),
        flags=re.IGNORECASE,
    ),
)
