"""JournalService: apply, list and watch journals."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tidelog.v1 import journal_service_pb2 as pb
from tidelog.wire.protowire import LENGTH, key_of, varint
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.message_checks import check_at_most, check_within
from tidelog_server.core.names import check_journal_name
from tidelog_server.journals.catalog import ANY_REVISION, Journal, JournalChange
from tidelog_server.journals.journals import Journals
from tidelog_server.journals.labels import Selector, Term, check_labels
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.rpc.lists.pages import Found, page_of
from tidelog_server.rpc.lists.watches import Table, Wakes, wire_pages
from tidelog_server.security.access import current_access, current_tenant
from tidelog_server.security.grants import OF_JOURNALS

# Journals changed in one atomic change of the metadata store: a new one is two records, and 120 records and a counter
# fit. The specifications of a request have at most 1 MiB, because etcd accepts at most 1.5 MiB.
MAX_JOURNALS_PER_REQUEST: Final = 60
# A term costs a binary search in the labels of a journal, so a call makes at most MAX_PAGE_LOOKS of them.
MAX_SELECTOR_TERMS: Final = 256
# Bytes of a record whose conversion counts as one look.
LOOK_BYTES: Final = 64

_JOURNALS: Final = key_of(1, LENGTH)


class JournalService:
    """Handlers of JournalService."""

    def __init__(self, journals: Journals, node: LogNode) -> None:
        self._journals = journals
        self._node = node
        self._wakes = Wakes(node, lambda: journals.catalog.version)
        journals.on_changed = self._wakes.wake

    async def apply_journals(self, request: pb.ApplyJournalsRequest, context: Context) -> bytes:
        """Create, change and delete journals."""
        looks = Looks.of(self._node, context)
        changes = await _changes(request.changes, looks)
        journals = await self._journals.apply(changes, current_tenant())
        return b"".join([part async for page, _ in wire_pages(journals, _encoded, looks) for part in page])

    async def list_journals(self, request: pb.ListJournalsRequest, context: Context) -> bytes:
        """List a page of journals."""
        selector, looks = _selector(request.selector), Looks.of(self._node, context)

        def find(name: str) -> Found[bytes]:
            journal, taken = self._selected(selector, name)
            if journal is None:
                return None, taken
            encoded, more = _encoded(journal)
            return encoded, taken + more

        page = await page_of(
            request, self._journals.catalog.names, OF_JOURNALS, find, looks, within=selector.journals()
        )
        rest = pb.ListJournalsResponse(next_page_token=page.next_token)
        return b"".join((*page.items, rest.SerializeToString()))

    def _selected(self, selector: Selector, name: str) -> Found[Journal]:
        journal = self._journals.catalog.records.get(name)
        if journal is None or not selector.matches(journal.labels, name):
            return None, selector.terms
        return journal, selector.terms

    async def watch_journals(self, request: pb.WatchJournalsRequest, context: Context) -> None:
        """Stream the journals that a selector matches, then the changes."""
        selector, catalog, looks = _selector(request.selector), self._journals.catalog, Looks.of(self._node, context)

        def find(name: str) -> Found[Journal]:
            access = current_access()
            return self._selected(selector, name) if access is None or access.may(OF_JOURNALS, name) else (None, 0)

        table = Table(catalog.names, catalog.changes, OF_JOURNALS, find, selector.journals())

        async def write(page: Sequence[bytes], gone: Sequence[str], is_last: bool) -> None:
            rest = pb.WatchJournalsResponse(
                gone=gone, is_complete=is_last, heartbeat_interval_ms=request.heartbeat_interval_ms
            )
            await context.write(b"".join((*page, rest.SerializeToString())))

        await self._wakes.stream(table, looks, request.heartbeat_interval_ms, _encoded, write)


async def _changes(wire: Sequence[Any], looks: Looks) -> list[JournalChange]:
    check_within(len(wire), 1, MAX_JOURNALS_PER_REQUEST, "changes", "the request has {value} changes")
    changes = []
    for each in wire:
        changes.append(_change(each))
        await looks.take(len(each.upsert.labels))
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
    check_at_most(
        len(wire.include) + len(wire.exclude), MAX_SELECTOR_TERMS, "selector", "the selector has {value} terms"
    )
    selector = Selector(_terms(wire.include), _terms(wire.exclude))
    selector.check()
    return selector


def _terms(wire: Iterable[Any]) -> tuple[Term, ...]:
    return tuple(Term(term.name, term.value, term.is_prefix) for term in wire)


def _spec(journal: Journal) -> pb.JournalSpec:
    labels = [pb.JournalLabel(name=name, value=value) for name, value in journal.labels]
    return pb.JournalSpec(name=journal.name, labels=labels, revision=journal.revision, channel=journal.channel)


def _encoded(journal: Journal) -> Found[bytes]:
    """Return a journal as an encoded field ``journals``, the same in all responses, and the looks that this takes.

    Why encoded one by one: a message with the labels of a page is copied into the response, and freed, in one step.
    """
    size_bytes = sum(len(name) + len(value) for name, value in journal.labels)
    encoded = _spec(journal).SerializeToString()
    return _JOURNALS + varint(len(encoded)) + encoded, 2 + len(journal.labels) + size_bytes // LOOK_BYTES
