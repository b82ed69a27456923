"""The synchronous lookup of a journal by its name."""

from collections.abc import Callable

from tidelog.admin.journal_types import JournalSpec
from tidelog.gazette.journal_lookup import lookup
from tidelog.gazette.messages import Journal
from tidelog.gazette.sync_append import inner_of
from tidelog.sync.client import Client
from tidelog.transport.background import background


def sync_lookup(client: Client) -> Callable[[Journal], JournalSpec]:
    """Return a function that asks the server of ``client``, and blocks its caller; see ``finder``."""
    find = lookup(inner_of(client))

    async def found(journal: Journal) -> JournalSpec:
        return await find(journal)

    return lambda journal: background.run(found(journal))
