"""The log of the blobs of a node: executes operations in steps, and writes the events of a step as one entry.

A step changes the state in memory when its events are submitted, because they precede all later ones in the log in any
case; it is answered once they are durable. A step of a mailbox that stores bodies has its part here in the same write.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.core.errors import Effect
from tidelog_server.core.ticks import Tick
from tidelog_server.log.append import Append
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.mailboxes.blobs.state import BlobState
from tidelog_server.mailboxes.blobs.step import BlobStep
from tidelog_server.mailboxes.loading import EventCodec
from tidelog_server.storage.rows import Row

_T = TypeVar("_T")


class BlobLog:
    """The blobs of a node and their log. Lives on the event loop; nothing here blocks.

    Attributes:
        place: Its vchannel.
        state: The blobs, including what is submitted and not durable yet.
        changes: Events since the last snapshot, or since the log was opened.
        snapshot_tick: Tick of the last complete snapshot; 0 without one.
    """

    def __init__(self, node: LogNode, codec: EventCodec, place: Place, state: BlobState) -> None:
        self.place = place
        self.state = state
        self.changes = 0
        self.snapshot_tick = 0
        self._node = node
        self._codec = codec

    async def run(
        self,
        operation: Callable[[BlobStep], _T],
        events: int,
        *,
        needs_disk: bool = False,
        rows: Sequence[Row] = (),
    ) -> _T:
        """Execute ``operation`` in a step of its own, and return its result once it is durable.

        Cancelling has no effect on an operation that was executed.

        Args:
            operation: Decides and changes the state. It raises TidelogServerError before it changes anything.
            events: Maximum number of events that it adds.
            needs_disk: True to refuse it while the disk is nearly full.
            rows: Changes of rows that are written with its events.

        Raises:
            TidelogServerError: The operation was refused, and nothing happened, unless its effect is unknown.
        """
        oracle, admission = self._node.shared.oracle, self._node.admission
        while (base := oracle.try_allocate(max(1, events))) is None:
            await oracle.prepare(max(1, events))
        admission.check_storage()
        if needs_disk:
            admission.check()
        step = BlobStep(self.state, base)
        result = operation(step)
        entries = self.enter(step)
        if entries or rows:
            await self._written(entries, rows)
        return result

    def enter(self, step: BlobStep, txn: TxnSpan | None = None) -> list[NewEntry]:
        """Complete a step; return its entry, which the caller submits without an ``await``; [] without events.

        ``txn`` is the transaction of the step.
        """
        if not step.payloads:
            return []
        batch = self._codec.encode(step.types, step.payloads)
        entry = NewEntry(
            self.place.vchannel.vchannel_id, Tick(step.base), batch.count, batch.message_type, batch.columns_crc32c,
            batch.columns, txn,
        )  # fmt: skip
        self.place.log.enter(self.place.vchannel, entry)
        self.changes += len(step.payloads)
        return [entry]

    async def until_durable(self, tick: int) -> None:
        """Wait until what was submitted at ``tick`` is durable. Raises TidelogServerError if the node stops before."""
        vchannel = self.place.vchannel
        while vchannel.durable_tick < tick:
            durable = asyncio.Event()
            vchannel.followers.add(durable)
            try:
                self._node.admission.check_storage()
                await durable.wait()
            finally:
                vchannel.followers.discard(durable)

    async def _written(self, entries: Sequence[NewEntry], rows: Sequence[Row]) -> None:
        """Write entries, and wait until they are durable. Raises TidelogServerError."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(append: Append) -> None:
            if done.done():
                return
            if append.failure is None:
                done.set_result(None)
            else:
                done.set_exception(append.failure.with_effect(Effect.UNKNOWN))

        self._node.committer.submit(Append(entries, True, settle, rows=rows))
        await done
