"""Names of channels and vchannels."""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tidelog_server.core.errors import InvalidNameError
from tidelog_server.core.limits import MAX_JOURNAL_NAME_CHARACTERS, MAX_MAILBOX_NAME_BYTES, MAX_VCHANNELS_PER_CHANNEL

MAX_CHANNEL_NAME_CHARACTERS: Final = 127
MAX_GROUP_NAME_CHARACTERS: Final = 127
MIN_JOURNAL_NAME_CHARACTERS: Final = 4

CHANNEL_NAME_PATTERN: Final = f"[a-z0-9][a-z0-9._-]{{0,{MAX_CHANNEL_NAME_CHARACTERS - 1}}}"
_CHANNEL_NAME: Final = re.compile(CHANNEL_NAME_PATTERN, re.ASCII)
GROUP_NAME_PATTERN: Final = f"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_GROUP_NAME_CHARACTERS - 1}}}"
_GROUP_NAME: Final = re.compile(GROUP_NAME_PATTERN, re.ASCII)
_INDEX: Final = re.compile("0|[1-9][0-9]{0,3}", re.ASCII)
RESERVED_PREFIX: Final = "_"
AUDIT_CHANNEL: Final = "_audit"
"""Administrative calls and refusals, see security.audit. Only the server appends to it."""
BLOB_CHANNEL: Final = "_blobs"
"""Blobs of a node, see ``blobs``. Only the server appends to it and trims it."""
JOURNAL_CHANNEL_PREFIX: Final = "_journal."
"""Prefix of the channels with the frames of journals. The server creates them; callers append to them and read them."""
_JOURNAL_CHANNEL: Final = re.compile(re.escape(JOURNAL_CHANNEL_PREFIX) + "[1-9][0-9]{0,18}", re.ASCII)
MAILBOX_CHANNEL_PREFIX: Final = "_mailbox."
"""Prefix of the channels with the events of mailboxes. Only the server appends to them and trims them."""
_MAILBOX_CHANNEL: Final = re.compile(re.escape(MAILBOX_CHANNEL_PREFIX) + "[1-9][0-9]{0,18}", re.ASCII)
TOKEN_CHARACTERS: Final = "A-Za-z0-9_+/.=%-"
"""The characters of names and labels of journals, as the inside of a character class."""
_JOURNAL_NAME: Final = re.compile(
    f"[{TOKEN_CHARACTERS}]{{{MIN_JOURNAL_NAME_CHARACTERS},{MAX_JOURNAL_NAME_CHARACTERS}}}", re.ASCII
)
_SHOWN_CHARACTERS: Final = 64
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
# Cache of parsed names; each append and scan parses one.
_NAMES_KEPT: Final = 4_096


@dataclass(frozen=True, slots=True)
class VchannelName:
    """A vchannel, ``orders/0``; ``index`` is None if the request omitted it."""

    channel: str
    index: int | None

    def __str__(self) -> str:
        return self.channel if self.index is None else f"{self.channel}/{self.index}"


def check_channel_name(name: str) -> str:
    """Return ``name`` if it is a valid channel name.

    Raises:
        InvalidNameError: It is not. Nothing happened.
    """
    return _checked(name, _CHANNEL_NAME, "lowercase letter", MAX_CHANNEL_NAME_CHARACTERS)


def _checked(name: str, form: re.Pattern[str], letter: str, max_characters: int) -> str:
    if not form.fullmatch(name):
        hint = (
            f"names that begin with {RESERVED_PREFIX!r} are reserved"
            if name.startswith(RESERVED_PREFIX)
            else f"begin with a {letter} or digit, then {letter}s, digits, '.', '_' or '-', "
            f"at most {max_characters} characters"
        )
        raise InvalidNameError(shown(name), expected=hint)
    return name


def check_existing_channel_name(name: str) -> str:
    """As ``check_channel_name``; ``name`` may also be the channel of a journal, which callers cannot create."""
    return name if is_journal_channel(name) else check_channel_name(name)


def is_journal_channel(name: str) -> bool:
    """Return whether this is the channel of a journal, existing or not."""
    return name.startswith(JOURNAL_CHANNEL_PREFIX) and _JOURNAL_CHANNEL.fullmatch(name) is not None


def journal_channel(journal_id: int) -> str:
    """Return the channel with the frames of a journal."""
    return f"{JOURNAL_CHANNEL_PREFIX}{journal_id}"


def check_journal_name(name: str) -> str:
    """Return ``name`` if it is a valid journal name: a clean relative path.

    Source: Gazette's journal names.

    Raises:
        InvalidNameError: It is not. Nothing happened.
    """
    if not _JOURNAL_NAME.fullmatch(name):
        raise InvalidNameError(
            shown(name), expected=f"{MIN_JOURNAL_NAME_CHARACTERS} to {MAX_JOURNAL_NAME_CHARACTERS} letters, digits and "
            "'-_+/.=%'",
        )  # fmt: skip
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise InvalidNameError(
            shown(name), expected="a clean relative path: no '/' at either end, no '//', and no part '.' or '..'"
        )
    return name


def is_plain(name: str) -> bool:
    """Return whether a name shows what it is: no characters that are not seen or change others, no blanks at its ends.

    Those are control and format characters, lone surrogates, and separators of lines and paragraphs.
    """
    if name.isascii():
        return name.isprintable() and name == name.strip()
    return name == name.strip() and not any(unicodedata.category(character) in _UNSEEN for character in name)


def check_new_mailbox_name(name: str) -> str:
    """Return ``name`` if a mailbox may be created with it: it is also plain, which earlier servers did not require.

    Raises:
        InvalidNameError: It may not. Nothing happened.
    """
    if not is_plain(check_mailbox_name(name)):
        raise InvalidNameError(
            shown(name), expected="text without format characters, line separators, and blanks at its ends"
        )
    return name


def check_mailbox_name(name: str) -> str:
    """Return ``name`` if it is a valid name of a mailbox, such as ``b@remote``: any text without control characters.

    Raises:
        InvalidNameError: It is not. Nothing happened.
    """
    size_bytes = len(name.encode("utf-8", "surrogatepass"))
    if not 1 <= size_bytes <= MAX_MAILBOX_NAME_BYTES:
        raise InvalidNameError(shown(name), expected=f"1 to {MAX_MAILBOX_NAME_BYTES} bytes of UTF-8, not {size_bytes}")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise InvalidNameError(shown(name), expected="UTF-8 text without control characters")
    return name


def mailbox_channel(mailbox_id: int) -> str:
    """Return the channel with the events of a mailbox."""
    return f"{MAILBOX_CHANNEL_PREFIX}{mailbox_id}"


def is_mailbox_channel(name: str) -> bool:
    """Return whether this is the channel of a mailbox, existing or not."""
    return name.startswith(MAILBOX_CHANNEL_PREFIX) and _MAILBOX_CHANNEL.fullmatch(name) is not None


def is_system_channel(name: str) -> bool:
    """Return whether this is a system channel of the server, which callers may only read and describe."""
    return name == AUDIT_CHANNEL or name.startswith(f"{AUDIT_CHANNEL}-")


def is_readable_system_channel(name: str) -> bool:
    """Return whether this is a channel that only the server changes, and that administrators may read."""
    return is_system_channel(name) or is_mailbox_channel(name) or is_blob_channel(name)


def is_blob_channel(name: str) -> bool:
    """Return whether this is the channel with the blobs of a node."""
    return name == BLOB_CHANNEL or name.startswith(f"{BLOB_CHANNEL}-")


def system_channel_name(name: str, node_id: str) -> str:
    """Return a system channel's name on a node: each node of a cluster has its own."""
    return f"{name}-{node_id}" if node_id and name in (AUDIT_CHANNEL, BLOB_CHANNEL) else name


def check_group_name(name: str) -> str:
    """Return ``name`` if it is a valid group name: as a channel name, but uppercase letters are allowed.

    Why uppercase: subscriptions of message streams are groups, and other systems use uppercase in subscription names.

    Raises:
        InvalidNameError: It is not. Nothing happened.
    """
    return _checked(name, _GROUP_NAME, "letter", MAX_GROUP_NAME_CHARACTERS)


@lru_cache(_NAMES_KEPT)
def parse_vchannel_name(name: str) -> VchannelName:
    """Return the parts of ``channel/index`` or ``channel``.

    Raises:
        InvalidNameError: The name is invalid. Nothing happened.
    """
    channel, slash, index = name.partition("/")
    check_existing_channel_name(channel)
    if not slash:
        return VchannelName(channel, None)
    if not _INDEX.fullmatch(index) or int(index) >= MAX_VCHANNELS_PER_CHANNEL:
        raise InvalidNameError(
            shown(name), expected=f"<channel>/<index> with an index from 0 to {MAX_VCHANNELS_PER_CHANNEL - 1}"
        )
    return VchannelName(channel, int(index))


def shown(name: str) -> str:
    """Return ``name`` for an error or a log line: escaped to one line and truncated."""
    escaped = name.encode("unicode_escape", "backslashreplace").decode("ascii")
    return escaped if len(escaped) <= _SHOWN_CHARACTERS else escaped[:_SHOWN_CHARACTERS] + "…"
