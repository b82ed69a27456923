"""The journal calls of the synchronous clients."""

from tidelog.admin.journals import AsyncJournalCalls
from tidelog.sync.generated.journals import JournalCallsBase


class JournalCalls(JournalCallsBase):
    """Journals: ``Client.journals`` and ``Cluster.journals``. See ``AsyncJournalCalls``."""

    def __init__(self, journals: AsyncJournalCalls) -> None:
        """Run the calls of ``journals``; does no I/O."""
        self._journals = journals
