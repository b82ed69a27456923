"""Checkpoint stores: where a consumer commits its positions and acknowledgements in one transaction with its state.

``tidelog.gazette.stores.postgres`` has the store for PostgreSQL, and needs the extra ``tidelog[postgres]``.
"""

from tidelog import _export
from tidelog.gazette.stores._generated_interface import CheckpointStore as CheckpointStore
from tidelog.gazette.stores._generated_on_tidelog import TidelogCheckpointStore as TidelogCheckpointStore
from tidelog.gazette.stores._generated_sqlite import AsyncSqliteCheckpointStore as AsyncSqliteCheckpointStore
from tidelog.gazette.stores.errors import ConsumerFencedError as ConsumerFencedError
from tidelog.gazette.stores.interface import AsyncCheckpointStore as AsyncCheckpointStore
from tidelog.gazette.stores.on_tidelog import AsyncTidelogCheckpointStore as AsyncTidelogCheckpointStore
from tidelog.gazette.stores.sqlite import SqliteCheckpointStore as SqliteCheckpointStore

_export(globals(), "tidelog.gazette")
