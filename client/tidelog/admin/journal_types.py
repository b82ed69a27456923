"""Descriptions of journals."""

from dataclasses import dataclass, field

from tidelog.admin.labels import CONTENT_TYPE_LABEL, LabelSet


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
