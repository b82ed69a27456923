"""The synchronous twin of the pages of several journals."""

from collections.abc import Iterable

from tidelog.gazette.consumers._generated_pages import PagesCalls
from tidelog.gazette.consumers.pages import AsyncPages
from tidelog.gazette.messages import Journal, NewMessageFunc
from tidelog.gazette.sync_append import JournalClient
from tidelog.transport.background import background


class Pages(PagesCalls):
    """Pages of any number of journals. See ``AsyncPages``; the frames are decoded on the client's event loop."""

    def __init__(self, journals: JournalClient, names: Iterable[Journal], new_message: NewMessageFunc) -> None:
        async def make() -> AsyncPages:
            return AsyncPages(journals.source, names, new_message)

        self._pages = background.run(make())
