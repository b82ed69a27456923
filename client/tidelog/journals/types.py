"""Descriptions of journals, and requests for them."""

from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.journals.labels import CONTENT_TYPE_LABEL, LabelSelector, LabelSet, LabelTerm
from tidelog.v1 import journal_service_pb2 as pb

ANY_REVISION: Final = -1
"""The expected revision of a change that applies in any case."""


@dataclass(frozen=True, slots=True)
class JournalSpec:
    """A journal: a named sequence of frames, in one vchannel of a system channel.

    Attributes:
        name: 4 to 512 letters, digits and ``-_+/.=%``, a clean relative path, such as ``my/topic/part-000``.
        labels: Its labels. ``content-type`` selects the framing.
        revision: Number of the last change of the specification; 0 for a journal that does not exist yet.
        channel: The system channel with its frames, ``_journal.<id>``; the server assigns it.
    """

    name: str
    labels: LabelSet = field(default_factory=LabelSet)
    revision: int = 0
    channel: str = ""

    @property
    def content_type(self) -> str:
        """The value of the label ``content-type``, or ``""``."""
        return self.labels.value_of(CONTENT_TYPE_LABEL)


@dataclass(frozen=True, slots=True)
class JournalUpsert:
    """Creates a journal, or replaces its labels.

    Attributes:
        name: Its name.
        labels: All of its labels.
        expected_revision: Revision that the journal must have; 0 if it must not exist, -1 for any.
    """

    name: str
    labels: LabelSet = field(default_factory=LabelSet)
    expected_revision: int = ANY_REVISION


@dataclass(frozen=True, slots=True)
class JournalDelete:
    """Deletes a journal with its frames.

    Attributes:
        name: Its name.
        expected_revision: Revision that the journal must have; -1 for any, or for a journal that may not exist.
    """

    name: str
    expected_revision: int = ANY_REVISION


JournalChange = JournalUpsert | JournalDelete


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Selects the journals to list or to watch.

    Attributes:
        selector: Selector of their labels; by default every journal.
    """

    selector: LabelSelector = field(default_factory=LabelSelector)


@dataclass(frozen=True, slots=True)
class ListResponse:
    """The journals that a ListRequest selects.

    Attributes:
        journals: Their specifications, in order of name.
    """

    journals: tuple[JournalSpec, ...] = ()


def spec(wire: Any) -> JournalSpec:
    """Return the specification in a protobuf message."""
    labels = LabelSet(tuple(sorted((label.name, label.value) for label in wire.labels)))
    return JournalSpec(wire.name, labels, wire.revision, wire.channel)


def change_to_wire(change: JournalChange) -> pb.JournalChange:
    """Return a change as a protobuf message."""
    if isinstance(change, JournalDelete):
        return pb.JournalChange(delete=change.name, expected_revision=change.expected_revision)
    labels = [pb.JournalLabel(name=name, value=value) for name, value in change.labels.labels]
    upsert = pb.JournalSpec(name=change.name, labels=labels)
    return pb.JournalChange(upsert=upsert, expected_revision=change.expected_revision)


def selector_to_wire(selector: LabelSelector) -> pb.JournalSelector:
    """Return a selector as a protobuf message."""
    return pb.JournalSelector(include=map(_term, selector.include), exclude=map(_term, selector.exclude))


def _term(term: LabelTerm) -> pb.JournalLabelTerm:
    return pb.JournalLabelTerm(name=term.name, value=term.value, is_prefix=term.is_prefix)
