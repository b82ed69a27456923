"""Records of journals in the metadata store: ``<root>/journal/<name>``, JSON (see docs/reference/format.md)."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.journals import JournalRevisionMismatchError
from tidelog_server.core.names import journal_channel
from tidelog_server.journals.labels import Labels
from tidelog_server.metadata.json_records import decode_record, encode_record
from tidelog_server.metadata.record_table import RecordTable
from tidelog_server.metadata.store import Change, Delete, MetadataStore, Put

ANY_REVISION: Final = -1
# In the metadata since format 1.
_RECORD_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal.

    Attributes:
        name: Its name.
        journal_id: Id of its channel's first vchannel; never reused.
        labels: Its labels, sorted, without the implicit ones.
        revision: Metadata revision of its last change.
    """

    name: str
    journal_id: int
    labels: Labels
    revision: int = 0

    @property
    def channel(self) -> str:
        """The channel with its frames."""
        return journal_channel(self.journal_id)

    def encode(self) -> bytes:
        """Return the record as it is stored; the metadata store keeps the revision."""
        return encode_record(_RECORD_VERSION, {"id": self.journal_id, "labels": self.labels})

    @classmethod
    def decode(cls, name: str, value: bytes, revision: int) -> "Journal":
        """Parse what ``encode`` returned. Raises DataLossError if ``value`` is invalid."""

        def parse(fields: dict[str, Any]) -> Journal:
            labels = tuple(sorted((str(label), str(text)) for label, text in fields["labels"]))
            return cls(name, int(fields["id"]), labels, revision)

        return decode_record(value, _RECORD_VERSION, parse, f"of journal '{name}'", journal=name)


def check_journals(journals: Iterable[Journal], channels: Container[str]) -> None:
    """Raise DataLossError if the channel of a journal is not in ``channels``; one commit writes both records."""
    for journal in journals:
        if journal.channel not in channels:
            raise DataLossError(
                f"journal '{journal.name}' has no record of its channel {journal.channel} in the metadata: restore the "
                "metadata from a backup",
                journal=journal.name,
            )


@dataclass(frozen=True, slots=True)
class JournalChange:
    """A wanted change of one journal.

    Attributes:
        name: The journal.
        labels: Its new labels, checked; None to delete the journal.
        expected_revision: Revision that the journal must have; 0 if it must not exist, ANY_REVISION for any.
    """

    name: str
    labels: Labels | None
    expected_revision: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes that agree with the known records.

    Attributes:
        new: Journals to create, with their labels.
        altered: Journals with new labels; their revision is that of the record to replace.
        gone: Journals to delete.
    """

    new: Mapping[str, Labels]
    altered: Sequence[Journal]
    gone: Sequence[Journal]


class JournalCatalog(RecordTable[Journal]):
    """The records of all journals; in a cluster, of all nodes. The caller serialises changes."""

    def __init__(self, metadata: MetadataStore, root: str) -> None:
        super().__init__(metadata, f"{root}/journal/", Journal.decode)

    def plan(self, changes: Sequence[JournalChange]) -> Plan:
        """Return what ``changes`` of different journals amount to.

        Raises:
            JournalRevisionMismatchError: A journal has another revision than expected.
        """
        new: dict[str, Labels] = {}
        altered, gone = [], []
        for change in changes:
            found = self.records.get(change.name)
            revision = 0 if found is None else found.revision
            if change.expected_revision not in (ANY_REVISION, revision):
                raise JournalRevisionMismatchError(
                    change.name, expected_revision=change.expected_revision, revision=revision
                )
            if found is None:
                if change.labels is not None:
                    new[change.name] = change.labels
            elif change.labels is None:
                gone.append(found)
            else:
                altered.append(Journal(found.name, found.journal_id, change.labels, found.revision))
        return Plan(new, altered, gone)

    def changes_of(self, plan: Plan, created: Sequence[Journal]) -> list[Change]:
        """Return the changes of records for ``plan``, whose new journals are ``created``."""
        return [
            *(Put(self.key(journal.name), journal.encode(), 0) for journal in created),
            *(Put(self.key(journal.name), journal.encode(), journal.revision) for journal in plan.altered),
            *(Delete(self.key(journal.name), journal.revision) for journal in plan.gone),
        ]

    def committed(self, plan: Plan, created: Sequence[Journal], revision: int) -> None:
        """Note that the changes were committed at ``revision``."""
        for journal in (*created, *plan.altered):
            self.learn(Journal(journal.name, journal.journal_id, journal.labels, revision))
        for journal in plan.gone:
            self.forget(journal.name)

    def channel_of(self, name: str) -> str | None:
        """Return the channel of a journal; None if it does not exist."""
        found = self.records.get(name)
        return None if found is None else found.channel
