"""Mailboxes of a node below gRPC, on the test's event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tidelog_server.core.callers import NO_TENANT
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.fold.calls import Call
from tidelog_server.fold.loading import Loaded, load
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.mailboxes.events import MAILBOX
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.mailboxes import Mailboxes
from tidelog_server.mailboxes.operations import (
    Fetched,
    LockFailures,
    Outgoing,
    Rejection,
    SentIds,
    acknowledge,
    extend,
    fetch,
    send,
    send_bodies,
)
from tidelog_server.mailboxes.snapshot import decode_snapshot
from tidelog_server.mailboxes.state import MailboxState
from tidelog_server.mailboxes.waiting import FetchCall
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.rpc.columns.fold_events import FoldEvents
from tidelog_server.runtime.clock import Clock
from tidelog_server.storage.log_store import LogStore
from tidelog_testing.parts.mailboxes import encode_snapshot
from tidelog_testing.parts.nodes import Node, running_node

LEASE_MS: Final = 30_000
CODEC: Final = FoldEvents()
_MAX_BYTES: Final = 1 << 20


class MailboxNode:
    """A running node and its mailboxes.

    Attributes:
        node: The node.
        mailboxes: Its mailboxes.
        reports: What the event loop reported as an unhandled error.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.mailboxes: Mailboxes = node.open_mailboxes(CODEC)
        self.reports: list[dict[str, Any]] = []

    async def create(self, name: str, **settings: object) -> Mailbox:
        """Create a mailbox, and open it."""
        await self.node.mailboxes.create(name, settings, NO_TENANT)
        return await self.mailboxes.open(name)

    async def bodies(self, log: Mailbox, fetched: Fetched) -> list[bytes]:
        """Return the bodies of fetched messages."""
        messages = await self.mailboxes.reader.messages(log, [grant.message_id for grant in fetched.grants])
        return [messages[grant.message_id].body for grant in fetched.grants]


@asynccontextmanager
async def running_mailboxes(
    store: LogStore, clock: Clock | None = None, metadata: MetadataStore | None = None
) -> AsyncIterator[MailboxNode]:
    """Run a node with mailboxes."""
    async with running_node(store, clock=clock, metadata=metadata) as node:
        mailboxes = MailboxNode(node)
        asyncio.get_running_loop().set_exception_handler(lambda _, report: mailboxes.reports.append(report))
        yield mailboxes


def sending(*bodies: bytes) -> Call[SentIds]:
    """Return a send of plain messages."""
    return Call(lambda step: send_bodies(step, bodies), len(bodies), sum(map(len, bodies)), needs_disk=True)


def sending_with(*messages: Outgoing) -> Call[SentIds]:
    """Return a send of messages with options."""
    return Call(lambda step: send(step, messages), len(messages), needs_disk=True)


def fetching(count: int = 10, *, lease_ms: int = LEASE_MS, wait_s: float = 0.0) -> FetchCall:
    """Return a fetch."""
    return FetchCall(lambda step: fetch(step, count, lease_ms, _MAX_BYTES), 1, wait_s=wait_s)


def acking(confirmed: Sequence[bytes], *rejected: Rejection) -> Call[LockFailures]:
    """Return an acknowledgement."""
    return Call(lambda step: acknowledge(step, confirmed, rejected), 1 + len(rejected))


def extending(lock_ids: Sequence[bytes], lease_ms: int = LEASE_MS) -> Call[tuple[int, LockFailures]]:
    """Return an extension of leases."""
    return Call(lambda step: extend(step, lock_ids, lease_ms), 1)


def locks_of(fetched: Fetched) -> list[bytes]:
    """Return the locks of fetched messages."""
    return [grant.lock_id for grant in fetched.grants]


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for a condition, in turns of the event loop."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0)


def loaded(store: LogStore, log: Mailbox) -> Loaded[MailboxState]:
    """Return a mailbox as a start would load it from ``store``."""
    vchannel_id = log.place.vchannel.vchannel_id
    return load(store, CODEC, vchannel_id, store.rows(SNAPSHOTS).get(vchannel_id, NO_TICK), MAILBOX)


def content(state: MailboxState, now: int) -> dict[str, Any]:
    """Return everything that callers can observe of a state once the tick ``now`` has come, but the order."""
    state.advance(now)
    rows, groups = state.rows, state.groups
    return {
        "messages": {
            rows.ids[row]: (
                rows.states[row], rows.statuses[row], rows.due[row], rows.expires[row], rows.until[row],
                rows.deliveries[row], rows.priorities[row], rows.sizes[row], rows.places[row],
                groups.name_of(rows.groups[row]),
            )
            for row in rows.live_rows()
        },
        "locks": dict(state.locks.by_message.items()),
        "ended": list(state.locks.all_ended()),
        "keys": sorted(state.keys.all()),
        "groups": {group.name: (group.size, group.in_flight) for group in groups.by_number.values()},
        "exhausted": sorted(state.exhausted),
        "is_paused": state.is_paused,
        "counts": (state.counts(), state.oldest_id),
    }  # fmt: skip


def copied(state: MailboxState) -> MailboxState:
    """Return a copy of a state."""
    return decode_snapshot(encode_snapshot(state))


def taken_in_order(state: MailboxState) -> list[int]:
    """Take all messages that can be delivered, and return their ids in order."""
    return [state.rows.ids[row] for row in state.order.take(1 << 30, 1 << 60, state.now)]
