"""Masks secrets in texts that leave the machine: those that are known, and what has the form of one.

A text that only looks like a secret is masked too: a mask too many costs less than a secret.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

MASK: Final = "********"
# Shorter values, such as a password "a", would mask parts of words.
_MIN_SECRET: Final = 4
_NAMES: Final = (
    r"(?:token|password|passwd|secret|credentials?|authorization|api[-_.]?key|private[-_.]?key|authparams|jaas)"
)
_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)
_FORMS: Final = tuple(
    (re.compile(form, re.IGNORECASE | re.DOTALL), replacement)
    for form, replacement in (
        (r"-----BEGIN .*?(?:-----END [^-]*-----|\Z)", MASK),
        # User and password before a host, and what follows the path of a URL.
        (r"(://)[^\s@\"'<>]*@", rf"\1{MASK}@"),
        (r"[^\s/:@,\"'=]+:(?!//)[^\s@,\"']*@", f"{MASK}@"),
        (r"(://[^\s?#\"']*[?#])[^\s\"']+", rf"\1{MASK}"),
        # Tokens of ours, signed tokens, and what calls have as credentials.
        (r"\btdl_[0-9a-f]+_[\w-]+", MASK),
        (r"\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?", MASK),
        (r"\b(bearer|basic)\s+[\w.~+/=-]{4,}", rf"\1 {MASK}"),
        # NAME=VALUE and "NAME": "VALUE", whose name ends with such a word.
        (rf"({_NAMES}(?:\\?[\"'])?\s*[=:]\s*\\?[\"']?)[^\s,;\"'\\]+", rf"\1{MASK}"),
    )
)
# After a user's name, with or without the scheme of a URL.
_PASSWORD: Final = re.compile(r"((?:^|[\s,/\"'])[^\s/:@,\"'=]*:)((?!//)[^\s@,\"']+)(?=@)")


@dataclass(frozen=True, slots=True)
class Masks:
    """The secrets that are known.

    Attributes:
        secrets: The secrets in each form in which a text may have them, the longest first.
    """

    secrets: tuple[str, ...]

    @classmethod
    def of(cls, secrets: Iterable[str]) -> "Masks":
        """Return the masks of secrets; those of a few characters are not known."""
        known = {text.strip() for text in secrets}
        forms = {
            form
            for text in known
            if len(text) >= _MIN_SECRET
            for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], quote(text, safe=""))
        }
        return cls(tuple(sorted(forms, key=len, reverse=True)))

    def masked(self, text: str) -> str:
        """Return a text with a mask in place of each secret. Idempotent."""
        for secret in self.secrets:
            text = text.replace(secret, MASK)
        for form, replacement in _FORMS:
            text = form.sub(replacement, text)
        return text


def is_secret_name(name: str) -> bool:
    """Return whether an option with this name has a secret as its value."""
    return _SECRET_NAME.search(name) is not None


def passwords_in(text: str) -> list[str]:
    """Return the passwords in the addresses of a text, such as ``http://user:password@host``."""
    return [password for _, password in _PASSWORD.findall(text)]


def without_passwords(text: str) -> str:
    """Return a text with a mask in place of each password in its addresses. Idempotent."""
    return _PASSWORD.sub(rf"\1{MASK}", text)
