"""The start check of a server with embedded metadata: checks the store and the records in it.

``python -m tidelog_server.node.start_check``, called in the same way as ``storage.recovery.child``. It checks a
read-only view of the database, so that a store that is refused was not written to.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from tidelog_server.channels.catalog import ROOT
from tidelog_server.core.names import AUDIT_CHANNEL
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.metadata.embedded import EmbeddedMetadataStore
from tidelog_server.node.record_check import check_records
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.security.token_store import TokenStore
from tidelog_server.storage.recovery.child import main
from tidelog_server.storage.rocksdb.snapshot import StoredLog


async def check_all(log: StoredLog) -> None:
    """Check the records of channels, groups, broadcasts and tokens, and the end of the audit log.

    Raises:
        DataLossError: A record cannot be read, or the records contradict each other or the log.
    """
    with ThreadPoolExecutor(1) as executor:
        metadata = await EmbeddedMetadataStore.open(log.metadata, executor, _refuse)
        batches = {vchannel_id: tail.batches for vchannel_id, tail in log.tails.items()}
        channels = await check_records(metadata, ROOT, batches, log.rows(POSITIONS))
        await TokenStore(metadata, ROOT, SystemClock()).reload()
    if (audit := channels.get(AUDIT_CHANNEL)) is not None:
        # The next audit event is chained to the last one, so a start reads it.
        for vchannel_id in log.tails.keys() & set(audit.vchannel_ids):
            last_tick = log.tails[vchannel_id].last_tick
            log.reader.read(vchannel_id, last_tick, last_tick + 1, 1)


async def _refuse(_: Callable[[], int]) -> NoReturn:
    raise AssertionError("a start check must not write")


if __name__ == "__main__":
    sys.exit(main(lambda log: asyncio.run(check_all(log))))
