"""What a channel holds that the server created for a caller: the frames of a journal, or the events of a mailbox."""

from dataclasses import dataclass
from enum import StrEnum

from tidelog_server.core.names import journal_channel, mailbox_channel


class ContentKind(StrEnum):
    """A kind of content. On disk: the name of the field of a channel's record that has the content's name."""

    JOURNAL = "journal"
    MAILBOX = "mailbox"


@dataclass(frozen=True, slots=True)
class Content:
    """The journal or mailbox whose messages a channel holds."""

    kind: ContentKind
    name: str

    def channel(self, vchannel_id: int) -> str:
        """Return the channel for it. Its name has the id of its vchannel, which is never reused."""
        if self.kind is ContentKind.JOURNAL:
            return journal_channel(vchannel_id)
        return mailbox_channel(vchannel_id)
