"""Checkpoint stores: where a consumer commits its positions and acknowledgements in one transaction with its state.

``tidelog.gazette.stores.postgres`` has the store for PostgreSQL, and needs the extra ``tidelog[postgres]``.
"""

from tidelog.gazette.stores._generated_interface import CheckpointStore
from tidelog.gazette.stores._generated_on_tidelog import TidelogCheckpointStore
from tidelog.gazette.stores.errors import ConsumerFencedError
from tidelog.gazette.stores.interface import AsyncCheckpointStore
from tidelog.gazette.stores.on_tidelog import AsyncTidelogCheckpointStore
from tidelog.gazette.stores.sqlite import AsyncSqliteCheckpointStore, SqliteCheckpointStore

__all__ = [
    "AsyncCheckpointStore",
    "AsyncSqliteCheckpointStore",
    "AsyncTidelogCheckpointStore",
    "CheckpointStore",
    "ConsumerFencedError",
    "SqliteCheckpointStore",
    "TidelogCheckpointStore",
]
