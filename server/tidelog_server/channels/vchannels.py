"""The operations on one vchannel other than appends: fence, open a producer, trim and scan."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from tidelog_server.channels.directory import Directory
from tidelog_server.channels.opened_windows import opened_windows
from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import FencingTokenMismatchError
from tidelog_server.core.names import is_system_channel
from tidelog_server.core.producers import ProducerWindow
from tidelog_server.core.ticks import Tick, compose
from tidelog_server.log.node import LogNode
from tidelog_server.log.scan.scanner import Scanner, ScanParameters, ScanSource
from tidelog_server.runtime.tasks import TaskOwner, to_its_end


class Vchannels:
    """The vchannels of this node by name. Lives on the event loop."""

    def __init__(self, node: LogNode, tasks: TaskOwner, directory: Directory, readers: Executor) -> None:
        self._node = node
        self._tasks = tasks
        self._directory = directory
        self._readers = readers

    def scanner(self, sources: Sequence[ScanSource], plan: ScanParameters, reader: str = "") -> Scanner:
        """Return a scanner over this node's vchannels; its memory is charged to ``reader``, or if empty to the node."""
        memory = self._node.read_budget.memory(reader)
        return Scanner(self._node.shared, self._readers, self._node.metrics, sources, plan, memory=memory)

    async def fence(self, name: str, fencing_token: int) -> None:
        """Set the fencing token of a vchannel, durably. Setting its current token succeeds.

        From the call on, appends with another token are refused; appends accepted before are not affected. Cancelling
        does not stop it.

        Raises:
            FencingTokenMismatchError: The vchannel's token is greater. Nothing happened.
        """
        self._node.admission.check_storage()
        _, vchannel = self._directory.find(name)
        if fencing_token < vchannel.fencing_token:
            raise FencingTokenMismatchError(
                vchannel=vchannel.name, fencing_token=fencing_token, actual_fencing_token=vchannel.fencing_token
            )
        # Ordering: set and submit in one step. Appends with the new token are written after the token, and appends
        # with an older one are refused from here on. A later drop of the vchannel is also written after the token.
        vchannel.fencing_token = fencing_token
        job = self._node.committer.submit_job(lambda: self._node.store.fence(vchannel.vchannel_id, fencing_token))
        # Later appends depend on the job, so cancelling ends the wait only.
        await asyncio.shield(asyncio.wrap_future(job))

    async def open_producer(
        self, name: str, producer_id: str, tenant: Tenant = NO_TENANT, *, accept_forgotten: bool = False
    ) -> list[ProducerWindow]:
        """Open a producer durably: increment its epoch, and return its resulting windows, on each of its vchannels.

        ``name`` is a vchannel, or a channel: then those of its first opening, see ``opened_windows``.

        From the call on, appends of older epochs are refused, which fences the process that used the producer before;
        appends accepted before are durable when this returns. Cancelling does not stop it.

        Raises:
            ProducerForgottenError: The producer is unknown and may have been evicted, and ``accept_forgotten`` is not
                set. Nothing happened.
            InvalidRequestError: It was opened in another way before. Nothing happened.
        """
        self._node.admission.check_storage()
        vchannels = [place.vchannel for place in self._directory.find_all(name)]
        producers = self._node.shared.producers
        keys = [(vchannel.vchannel_id, producer_id) for vchannel in vchannels]
        # Ordering: raised in memory and submitted in one step of the event loop. An append that was accepted before is
        # written before these rows, and an append of an older epoch is refused from here on.
        windows = opened_windows(
            [vchannel.name for vchannel in vchannels], producer_id, [producers.window(key) for key in keys], tenant,
            [not accept_forgotten and producers.may_be_forgotten(key) for key in keys],
            is_channel="/" not in name, accept_forgotten=accept_forgotten,
        )  # fmt: skip
        rows = [row for key, window in zip(keys, windows, strict=False) for row in producers.put(key, window)]
        await self._tasks.finish(self._node.committer.submit_rows(rows))
        return windows

    @to_its_end
    async def trim(
        self, name: str, *, before_tick: int | None = None, before_ms: int | None = None, is_system: bool = False
    ) -> Tick:
        """Trim a vchannel, durably; return the first tick that is still available. Cancelling does not stop it.

        Args:
            name: The vchannel.
            before_tick: Messages with smaller ticks are removed; with neither bound, all acknowledged messages are.
            before_ms: The same by time, in milliseconds since the epoch; overrides ``before_tick``.
            is_system: True to accept system channels, of which the newest message is kept.
        """
        self._node.admission.check_storage()
        log, vchannel = self._directory.find_to_read(name) if is_system else self._directory.find(name)
        if before_ms is not None:
            before_tick = compose(before_ms)
        async with self._directory.changes:
            log.check_open()
            # Ordering: trim durable messages only, so that an append in flight is not half trimmed.
            end_tick = vchannel.durable_tick + (not is_system_channel(log.name))
            cut = end_tick if before_tick is None else min(before_tick, end_tick)
            tail = await self._node.committer.run(lambda: self._node.store.trim(vchannel.vchannel_id, cut))
            vchannel.trim_tick = tail.trim_tick
        self._node.reclaim_wanted.set()
        return tail.trim_tick
