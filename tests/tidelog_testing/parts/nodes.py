"""A node below gRPC, on the test's event loop, with a store that the test chooses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from tidelog_server.channels.catalog import Owner
from tidelog_server.core.errors.cluster import LogFailure
from tidelog_server.core.limits import Limits
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import Tick
from tidelog_server.log.append import Append, Settled, TickedAppend
from tidelog_server.log.batch import UNCONDITIONAL, AppendOptions, Batch, Conditions
from tidelog_server.log.batch_append import BatchAppend
from tidelog_server.log.channel_log import LogContext
from tidelog_server.log.node import LogNode
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.node.node import Node as ServerNode
from tidelog_server.runtime.clock import Clock, SystemClock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.log_store import LogStore


class Node(ServerNode):
    """A running node and its parts.

    Attributes:
        failures: Storage failures that the node reported.
        task_failures: Failures of background tasks.
    """

    def __init__(self, log: LogNode, tasks: TaskOwner, failures: list[LogFailure], task_failures: list[str]) -> None:
        super().__init__(log, tasks)
        self.tasks = tasks
        self.failures = failures
        self.task_failures = task_failures

    async def create(self, name: str, vchannels: int = 1) -> None:
        """Create a channel."""
        await self.lifecycle.create([name], 0, vchannels, Owner(), if_not_exists=False)

    async def submit(
        self,
        vchannel: str,
        batch: Batch,
        *,
        needs_sync: bool = True,
        conditions: Conditions = UNCONDITIONAL,
        producer: ProducerSequence | None = None,
    ) -> "Submitted":
        """Append without waiting for the outcome. Raises TidelogServerError if it is refused."""
        options = AppendOptions(needs_sync, conditions=conditions, producer=producer)
        target = self.directory.find(vchannel)
        submitted = Submitted(lambda settle: BatchAppend(target, batch, options, settle))
        await submitted.submit(self.log.shared)
        return submitted

    async def append(
        self, vchannel: str, batch: Batch, *, needs_sync: bool = True, producer: ProducerSequence | None = None
    ) -> Tick:
        """Append, and return the tick of the first message once it is acknowledged."""
        submitted = await self.submit(vchannel, batch, needs_sync=needs_sync, producer=producer)
        return await submitted.acknowledged()


class Submitted:
    """An append, and its outcome."""

    def __init__(self, create: Callable[[Settled], TickedAppend]) -> None:
        """Create the append with a callback that records the outcome."""
        self._settled = asyncio.Event()
        self.append = create(lambda _: self._settled.set())

    async def submit(self, shared: LogContext) -> None:
        """Submit it as the node does. Raises TidelogServerError.

        It is submitted before this first waits, unless the oracle has no ticks: on a busy machine, it may need a moment
        to extend its bound.
        """
        await shared.submit(self.append)

    async def outcome(self) -> TickedAppend:
        """Return the append once its outcome is known."""
        await self._settled.wait()
        return self.append

    async def acknowledged(self) -> Tick:
        """Return its first tick, or raise its failure."""
        append = await self.outcome()
        if append.failure is not None:
            raise append.failure
        return append.entries[0].base_tick


@asynccontextmanager
async def running_node(
    store: LogStore,
    limits: Limits | None = None,
    clock: Clock | None = None,
    metadata: MetadataStore | None = None,
) -> AsyncIterator[Node]:
    """Run a node, and close its store at the end."""
    failures: list[LogFailure] = []
    task_failures: list[str] = []
    metrics = Metrics()
    log = LogNode(store, limits or Limits(), clock or SystemClock(), metrics, on_failure=failures.append)
    tasks = TaskOwner(lambda name, _: task_failures.append(name))
    node = Node(log, tasks, failures, task_failures)
    try:
        await node.open(metadata or MemoryMetadataStore())
        yield node
    finally:
        await tasks.close()
        await node.close()
        await log.committer.close()
        store.close()


def base_ticks(appends: Sequence[Append]) -> list[int]:
    """Return the first tick of each append."""
    return [append.entries[0].base_tick for append in appends]
