"""JournalService: apply, list and watch journals."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tidelog.v1 import journal_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import (
    MAX_JOURNALS_PER_REQUEST,
    MAX_LIST_PAGE,
    MAX_SELECTOR_TERMS,
    OWNERS_LOOK_INTERVAL_S,
)
from tidelog_server.core.names import check_journal_name
from tidelog_server.journals.catalog import ANY_REVISION, Journal, JournalChange
from tidelog_server.journals.journals import Journals
from tidelog_server.journals.labels import Selector, Term, check_labels
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.context import Context
from tidelog_server.security.access import current_access, current_tenant
from tidelog_server.security.grants import OF_JOURNALS


class JournalService:
    """Handlers of JournalService."""

    def __init__(self, journals: Journals, node: LogNode) -> None:
        self._journals = journals
        self._node = node

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the handler of each method of the service."""
        return {
            "ApplyJournals": self.apply_journals,
            "ListJournals": self.list_journals,
            "WatchJournals": self.watch_journals,
        }

    async def apply_journals(self, request: pb.ApplyJournalsRequest, _: Context) -> pb.ApplyJournalsResponse:
        """Create, change and delete journals."""
        journals = await self._journals.apply(_changes(request.changes), current_tenant())
        return pb.ApplyJournalsResponse(journals=map(_spec, journals))

    async def list_journals(self, request: pb.ListJournalsRequest, _: Context) -> pb.ListJournalsResponse:
        """List a page of journals."""
        if request.page_size > MAX_LIST_PAGE:
            raise InvalidRequestError(
                f"page_size is {request.page_size}, expected 1 to {MAX_LIST_PAGE}, or 0", field="page_size"
            )
        size = request.page_size or MAX_LIST_PAGE
        found = list(filter(_is_visible, self._journals.select(_selector(request.selector), request.page_token)))
        return pb.ListJournalsResponse(
            journals=map(_spec, found[:size]), next_page_token=found[size - 1].name if size < len(found) else ""
        )

    async def watch_journals(self, request: pb.WatchJournalsRequest, context: Context) -> None:
        """Stream the journals that a selector matches, then the changes.

        A response has the differences from the previous one: changes that cancel each other in between are not sent.
        """
        watch = _Watch(self._journals, _selector(request.selector))
        changed = asyncio.Event()
        self._node.watchers.add(changed)
        self._journals.watchers.add(changed)
        try:
            while True:
                self._node.admission.check_serving()
                for response in watch.responses():
                    await context.write(response.SerializeToString())
                await _changed(changed)
        finally:
            self._node.watchers.discard(changed)
            self._journals.watchers.discard(changed)


class _Watch:
    """The journals that one caller has received.

    Only journals that are other objects than before are compared with the selector, so that a change among thousands of
    journals costs little.
    """

    def __init__(self, journals: Journals, selector: Selector) -> None:
        self._journals = journals
        self._selector = selector
        self._known: dict[str, Journal] = {}
        self._told: set[str] = set()
        self._version = -1
        self._grants: object = None

    def responses(self) -> Iterator[pb.WatchJournalsResponse]:
        """Yield the differences from the last call; no response without a difference, except in the first call."""
        access, catalog = current_access(), self._journals.catalog
        grants = None if access is None else access.principal.grants
        is_first = self._version < 0
        if grants is not self._grants:
            # Its permissions changed, so other journals may be visible to the caller.
            self._known = {}
        elif catalog.version == self._version:
            return
        new: list[Journal] = []
        gone = [name for name in self._told if name not in catalog.records]
        for name, journal in sorted(catalog.records.items()):
            if self._known.get(name) is not journal:
                if self._selector.matches(journal.all_labels) and _is_visible(journal):
                    new.append(journal)
                elif name in self._told:
                    gone.append(name)
        self._version, self._grants, self._known = catalog.version, grants, dict(catalog.records)
        self._told = self._told.difference(gone).union(journal.name for journal in new)
        if new or gone or is_first:
            yield from _pages(new, gone)


def _pages(new: Sequence[Journal], gone: Sequence[str]) -> Iterator[pb.WatchJournalsResponse]:
    """Yield the pages of one change; the last one has ``is_complete`` set."""
    pages = [new[begin : begin + MAX_LIST_PAGE] for begin in range(0, len(new), MAX_LIST_PAGE)] or [[]]
    for page in pages[:-1]:
        yield pb.WatchJournalsResponse(journals=map(_spec, page))
    yield pb.WatchJournalsResponse(journals=map(_spec, pages[-1]), gone=gone, is_complete=True)


async def _changed(changed: asyncio.Event) -> None:
    """Wait until a journal may have changed or the node stops, at most OWNERS_LOOK_INTERVAL_S.

    Why not longer: no event says that the caller's permissions have changed.
    """
    try:
        async with asyncio.timeout(OWNERS_LOOK_INTERVAL_S):
            await changed.wait()
    except TimeoutError:
        return
    changed.clear()


def _changes(wire: Sequence[Any]) -> list[JournalChange]:
    if not 1 <= len(wire) <= MAX_JOURNALS_PER_REQUEST:
        raise InvalidRequestError(
            f"the request has {len(wire)} changes, expected 1 to {MAX_JOURNALS_PER_REQUEST}", field="changes"
        )
    changes = list(map(_change, wire))
    if len({change.name for change in changes}) < len(changes):
        raise InvalidRequestError("the request changes a journal twice", field="changes")
    return changes


def _change(wire: Any) -> JournalChange:
    if wire.expected_revision < ANY_REVISION:
        raise InvalidRequestError(
            f"expected_revision is {wire.expected_revision}, expected a revision, 0 for a journal that must not exist, "
            f"or {ANY_REVISION} for any",
            field="expected_revision",
        )
    kind = wire.WhichOneof("change")
    if kind is None:
        raise InvalidRequestError("a change is neither an upsert nor a delete: set one of them", field="changes")
    if kind == "upsert":
        labels = check_labels((label.name, label.value) for label in wire.upsert.labels)
        return JournalChange(check_journal_name(wire.upsert.name), labels, wire.expected_revision)
    if not wire.expected_revision:
        raise InvalidRequestError(
            f"expected_revision of a delete is 0: set the journal's revision, or {ANY_REVISION} for any",
            field="expected_revision",
        )
    return JournalChange(check_journal_name(wire.delete), None, wire.expected_revision)


def _selector(wire: Any) -> Selector:
    if len(wire.include) + len(wire.exclude) > MAX_SELECTOR_TERMS:
        raise InvalidRequestError(
            f"the selector has {len(wire.include) + len(wire.exclude)} terms, at most {MAX_SELECTOR_TERMS} are allowed",
            field="selector",
        )
    return Selector(_terms(wire.include), _terms(wire.exclude))


def _terms(wire: Iterable[Any]) -> tuple[Term, ...]:
    return tuple(Term(term.name, term.value, term.is_prefix) for term in wire)


def _is_visible(journal: Journal) -> bool:
    """Return whether the caller has a permission on a journal."""
    access = current_access()
    return access is None or access.may(OF_JOURNALS, journal.name)


def _spec(journal: Journal) -> pb.JournalSpec:
    labels = [pb.JournalLabel(name=name, value=value) for name, value in journal.labels]
    return pb.JournalSpec(name=journal.name, labels=labels, revision=journal.revision, channel=journal.channel)
