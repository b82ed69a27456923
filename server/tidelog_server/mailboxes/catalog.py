"""Records of mailboxes in the metadata store: ``<root>/mailbox/<name>``, JSON (see docs/reference/format.md)."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.mailboxes import DEFAULT_SETTINGS, MailboxSettings
from tidelog_server.core.names import mailbox_channel
from tidelog_server.metadata.json_records import decode_record, encode_record
from tidelog_server.metadata.record_table import RecordTable
from tidelog_server.metadata.store import Delete, MetadataStore, Put

# In the metadata since format 1.
_RECORD_VERSION: Final = 1
_FIELDS: Final = ("id", "created_ms", "settings")
_SETTINGS: Final = tuple(field.name for field in fields(MailboxSettings))


@dataclass(frozen=True, slots=True)
class MailboxRecord:
    """A mailbox.

    Attributes:
        name: Its name.
        mailbox_id: Id of its channel's first vchannel; never reused.
        settings: Its settings, checked.
        created_ms: Time of its creation, in milliseconds since the epoch.
        revision: Metadata revision of its last change.
    """

    name: str
    mailbox_id: int
    settings: MailboxSettings
    created_ms: int
    revision: int = 0

    @property
    def channel(self) -> str:
        """The channel with its events."""
        return mailbox_channel(self.mailbox_id)

    def encode(self) -> bytes:
        """Return the record as it is stored; the metadata store keeps the revision."""
        settings = {name: getattr(self.settings, name) for name in _SETTINGS}
        values = (self.mailbox_id, self.created_ms, settings)
        return encode_record(_RECORD_VERSION, dict(zip(_FIELDS, values, strict=True)))

    @classmethod
    def decode(cls, name: str, value: bytes, revision: int) -> "MailboxRecord":
        """Parse what ``encode`` returned. Raises DataLossError if ``value`` is invalid."""

        def parse(found: dict[str, Any]) -> MailboxRecord:
            _check_keys("record", found, _FIELDS)
            ids = _number("id", found["id"], 1), _number("created_ms", found["created_ms"], 0)
            return cls(name, ids[0], _settings(found["settings"]), ids[1], revision)

        return decode_record(value, _RECORD_VERSION, parse, f"of mailbox '{name}'", mailbox=name)


def _settings(found: Mapping[str, Any]) -> MailboxSettings:
    """Return the settings of a record. Raises ValueError, TypeError or InvalidRequestError."""
    _check_keys("settings", found, _SETTINGS)
    values: dict[str, Any] = dict(found)
    for name, default in ((name, getattr(DEFAULT_SETTINGS, name)) for name in _SETTINGS):
        if isinstance(default, tuple):
            values[name] = tuple(_number(name, each, 0) for each in values[name])
        elif isinstance(default, int):
            values[name] = _number(name, values[name], 0)
        elif not isinstance(values[name], str):
            raise TypeError(f"{name} is not a text")
    settings = MailboxSettings(**values)
    settings.check()
    return settings


def _check_keys(what: str, found: Any, expected: Iterable[str]) -> None:
    if not isinstance(found, dict) or list(found) != list(expected):
        raise ValueError(f"the {what} does not have the fields {', '.join(expected)}")


def _number(name: str, value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is not a number, {least} or greater")
    return value


def check_mailboxes(mailboxes: Mapping[str, MailboxRecord], channels: Container[str]) -> None:
    """Raise DataLossError if the channel or the dead-letter mailbox of a mailbox has no record.

    One commit writes a mailbox and its channel, and a mailbox that receives dead letters cannot be deleted.
    """
    for record in mailboxes.values():
        missing = ""
        if record.channel not in channels:
            missing = f"its channel {record.channel}"
        elif record.settings.dead_letter and record.settings.dead_letter not in mailboxes:
            missing = f"its mailbox for dead letters, '{record.settings.dead_letter}',"
        if missing:
            raise DataLossError(
                f"mailbox '{record.name}' has no record of {missing} in the metadata: restore the metadata from a "
                "backup",
                mailbox=record.name,
            )


class MailboxCatalog(RecordTable[MailboxRecord]):
    """The records of all mailboxes; in a cluster, of all nodes. The caller serialises changes."""

    def __init__(self, metadata: MetadataStore, root: str) -> None:
        super().__init__(metadata, f"{root}/mailbox/", MailboxRecord.decode)

    def channel_of(self, name: str) -> str | None:
        """Return the channel of a mailbox; None if it does not exist."""
        found = self.records.get(name)
        return None if found is None else found.channel

    def dead_letters_reach(self, begin: str, name: str) -> bool:
        """Return whether dead letters of mailbox ``begin`` reach ``name``, over any number of mailboxes."""
        passed = set[str]()
        while begin != name:
            found = self.records.get(begin)
            if found is None or begin in passed:
                return False
            passed.add(begin)
            begin = found.settings.dead_letter
        return True

    def sender_of_dead_letters(self, name: str) -> str:
        """Return a mailbox whose dead letters go to ``name``; empty without one."""
        return next((each.name for each in self.records.values() if each.settings.dead_letter == name), "")

    def put(self, record: MailboxRecord) -> Put:
        """Return the change that stores ``record``, whose revision is that of the record to replace; 0 for none."""
        return Put(self.key(record.name), record.encode(), record.revision)

    def delete(self, record: MailboxRecord) -> Delete:
        """Return the change that deletes ``record``."""
        return Delete(self.key(record.name), record.revision)

    def committed(self, record: MailboxRecord, revision: int) -> MailboxRecord:
        """Note that ``record`` was stored at ``revision``, and return it with that revision."""
        stored = replace(record, revision=revision)
        self.learn(stored)
        return stored
