"""The lookup of a journal by its name."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tidelog.client import AsyncClient
from tidelog.cluster import AsyncCluster
from tidelog.errors import TidelogError
from tidelog.gazette.append_driver import FindOwner
from tidelog.gazette.errors import MissingJournalError
from tidelog.gazette.messages import Journal
from tidelog.journals.calls import AsyncJournalCalls
from tidelog.journals.labels import LabelSelector, LabelTerm
from tidelog.journals.types import JournalSpec, ListRequest
from tidelog.transport.retry import DEFAULT_RETRY, Retry, may_repeat, retry_after_s


def finder(
    journals: AsyncJournalCalls, retry: Retry = DEFAULT_RETRY
) -> Callable[[Journal], Coroutine[Any, Any, JournalSpec]]:
    """Return a function that asks the server for the specification of a journal.

    If the server is unavailable, it asks again for up to ``retry.give_up_s``. It raises MissingJournalError if there is
    no journal with the name.
    """

    async def find(journal: Journal) -> JournalSpec:
        request = ListRequest(LabelSelector(include=(LabelTerm("name", journal),)))
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + retry.give_up_s
        pauses_s = retry.pauses_s()
        while True:
            try:
                return _only((await journals.list(request)).journals, journal)
            except TidelogError as error:
                if not may_repeat(error) or loop.time() >= give_up_s:
                    raise
                await asyncio.sleep(max(next(pauses_s), retry_after_s(error)))

    return find


def owner_function(client: AsyncClient | AsyncCluster) -> FindOwner:
    """Return a function that returns a client of the node that owns a channel; of a single server, ``client``."""
    if isinstance(client, AsyncCluster):
        return client.client_of

    async def owner_of(_: str) -> AsyncClient:
        return client

    return owner_of


def _only(found: Sequence[JournalSpec], journal: Journal) -> JournalSpec:
    for spec in found:
        if spec.name == journal:
            return spec
    raise MissingJournalError(f"named journal does not exist ({journal})", values={"journal": journal})
