"""The mailbox calls of the synchronous clients."""

from tidelog.admin.mailboxes import AsyncMailboxCalls
from tidelog.sync.generated.mailboxes import MailboxCallsBase


class MailboxCalls(MailboxCallsBase):
    """Mailboxes: ``Client.mailboxes`` and ``Cluster.mailboxes``. See ``AsyncMailboxCalls``."""

    def __init__(self, mailboxes: AsyncMailboxCalls) -> None:
        """Run the calls of ``mailboxes``; does no I/O."""
        self._mailboxes = mailboxes
