"""The node: builds the features from the log up, opens them in order, and closes them."""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

from tidelog_server.blobs.store import BlobChannel
from tidelog_server.broadcast.service import Broadcasts
from tidelog_server.broadcast.store import BroadcastRecords
from tidelog_server.channels.catalog import ROOT, Catalog
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.lifecycle import Lifecycle
from tidelog_server.channels.ownership import Ownership
from tidelog_server.channels.retention import DEFAULT_CHECK_INTERVAL_MS, Retainer
from tidelog_server.channels.vchannels import Vchannels
from tidelog_server.cluster.cluster import Cluster
from tidelog_server.core.errors import ChannelNotExistError
from tidelog_server.core.limits import DEFAULT_BLOB_GRACE_S
from tidelog_server.core.names import BLOB_CHANNEL
from tidelog_server.fold.events import EventCodec
from tidelog_server.groups.groups import Groups
from tidelog_server.groups.lag import LagMeter
from tidelog_server.journals.journals import Journals
from tidelog_server.log.node import LogNode
from tidelog_server.log.oracle import TickOracle
from tidelog_server.log.protocols import Place
from tidelog_server.log.scan.planner import ScanPlanner
from tidelog_server.mailboxes.mailboxes import Mailboxes
from tidelog_server.mailboxes.registry import Registry
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import MetadataStore, SharedMetadataStore
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.txn.prepared import PreparedTransactions
from tidelog_server.txn.staged import Transactions

_READERS: Final = 4


class Node:
    """The features of this node. Lives on the event loop.

    Attributes:
        log: The logs of its channels.
        cluster: Its membership in a cluster; None for a standalone server.
        opened_mailboxes: Its mailboxes and blobs, once they are served.
        broadcasts: Its broadcasts; set when it opens.
        catalog: The records of channels; set when it opens.
    """

    def __init__(
        self,
        log: LogNode,
        tasks: TaskOwner,
        *,
        retention_check_interval_ms: int = DEFAULT_CHECK_INTERVAL_MS,
        blob_grace_s: float = DEFAULT_BLOB_GRACE_S,
    ) -> None:
        self.log = log
        self.cluster: Cluster | None = None
        self.opened_mailboxes: Mailboxes | None = None
        self._tasks = tasks
        self._readers: Executor = ThreadPoolExecutor(_READERS, thread_name_prefix="tidelog-reader")
        self.directory = Directory(log)
        self.vchannels = Vchannels(log, tasks, self.directory, self._readers)
        self.transactions = Transactions(log, tasks, log.reclaim_wanted.set)
        self.prepared = PreparedTransactions(log, tasks, self.transactions)
        self.groups = Groups(log, tasks, self._readers, self.directory.find, self.directory.find_channel)
        self._retainer = Retainer(log, tasks, self._readers, self.directory.changes)
        self._blob_grace_s = blob_grace_s
        self._retention_check_interval_s = retention_check_interval_ms / 1_000
        self.lifecycle = Lifecycle(
            log, tasks, self.directory,
            retainer=self._retainer, groups=self.groups, transactions=self.transactions,
        )  # fmt: skip
        self.journals = Journals(log, tasks, self.directory, self.lifecycle)
        self.mailboxes = Registry(log, tasks, self.directory, self.lifecycle)
        self.planner: ScanPlanner
        self.lag_meter: LagMeter
        self.broadcasts: Broadcasts
        self.catalog: Catalog
        self._commits: SharedCommits | None = None

    async def open(self, metadata: MetadataStore) -> None:
        """Load the catalog, finish operations that a crash interrupted, and open all channels.

        Raises:
            DataLossError: Catalog and store contradict each other.
        """
        catalog = Catalog(metadata, ROOT)
        oracle = TickOracle(self.log.clock, metadata, catalog.oracle_key)
        await oracle.open(self.log.store.head.last_tick)
        self.log.open(oracle)
        await self._open(metadata, catalog, ROOT)

    async def open_in_cluster(self, metadata: SharedMetadataStore, cluster: Cluster) -> None:
        """As ``open``, for a node of a cluster: opens this node's channels. ``cluster`` must be open.

        Raises:
            DataLossError: Catalog and store contradict each other.
        """
        self.cluster = cluster
        self.log.open(cluster.oracle)
        catalog = Catalog(metadata, ROOT, cluster.node_id)
        # Groups and broadcasts are local to this node, so their records have a root of their own.
        await self._open(metadata, catalog, f"{ROOT}/local/{cluster.node_id}")
        self._tasks.keep("channels", self.lifecycle.follow(metadata))
        self._tasks.keep("journals", self.journals.follow(metadata))
        self._tasks.keep("journal-channels", self.journals.orphans.run())
        self._tasks.keep("mailboxes", self.mailboxes.follow(metadata))
        self._tasks.keep("mailbox-channels", self.mailboxes.orphans.run())

    async def _open(self, metadata: MetadataStore, catalog: Catalog, root: str) -> None:
        log, tasks = self.log, self._tasks
        self.catalog = catalog
        await catalog.open()
        self.directory.ownership = Ownership(catalog, self.cluster)
        self.planner = ScanPlanner(log.shared, self._readers)
        commits = self._commits = SharedCommits(metadata, tasks)
        broadcasts = BroadcastRecords(metadata, commits, root)
        self.broadcasts = Broadcasts(log, tasks, broadcasts, self.directory.find, self.directory.find_all)
        self._retainer.open(catalog, self.groups.pinned_tick, log.reclaim_wanted.set)
        await self.lifecycle.open(catalog, self.broadcasts)
        await self.transactions.open()
        self.prepared.open()
        await self.groups.open(metadata, commits, root)
        await self.lifecycle.finish_growths()
        await self.broadcasts.open()
        await self.journals.open(metadata, catalog, ROOT)
        await self.mailboxes.open(metadata, catalog, ROOT)
        self.lag_meter = LagMeter(log.store, self.groups.durable, self._readers, log.clock, log.metrics)
        tasks.keep("lag", self.lag_meter.run())
        tasks.keep("reclaim", log.reclaim())
        tasks.keep("retention", self._retainer.run(self._retention_check_interval_s))

    async def close(self) -> None:
        """Release the reader threads. Idempotent; may be called after ``open`` failed."""
        if self._commits is not None:
            self._commits.close()
        await asyncio.to_thread(self._readers.shutdown)

    def open_mailboxes(self, codec: EventCodec) -> Mailboxes:
        """Serve the mailboxes of this node, and load them in the background. Only after ``open``, once."""
        channel = BlobChannel(self._find_blobs, lambda: self.lifecycle.ensure_system_channel(BLOB_CHANNEL))
        mailboxes = Mailboxes(
            self.log,
            self._tasks,
            self._readers,
            codec,
            self.mailboxes.find,
            tenant_of=self.catalog.tenant_of,
            channel=channel,
            blob_grace_s=self._blob_grace_s,
        )
        self.opened_mailboxes = mailboxes
        self.mailboxes.on_configured = mailboxes.configured
        self.mailboxes.on_deleted = mailboxes.deleted
        mailboxes.start()
        self._tasks.start("mailbox-loading", mailboxes.open_all(self.mailboxes.own_names()))
        return mailboxes

    def _find_blobs(self) -> Place | None:
        try:
            return self.directory.find_to_read(BLOB_CHANNEL)
        except ChannelNotExistError:
            return None

    def refresh_metrics(self, *, per_group: bool = False, per_mailbox: bool = False) -> None:
        """Update the metrics that are computed on demand; if wanted, also those of each group and mailbox."""
        self.broadcasts.refresh_metrics()
        self.groups.refresh_metrics()
        self.transactions.refresh_metrics()
        self.lag_meter.refresh_metrics(per_group=per_group)
        if self.opened_mailboxes is not None:
            self.opened_mailboxes.refresh_metrics(per_mailbox=per_mailbox)
