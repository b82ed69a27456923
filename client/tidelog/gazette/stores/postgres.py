"""Checkpoints in PostgreSQL. Needs the extra ``tidelog[postgres]``."""

from tidelog.gazette.stores._generated_postgres import PostgresCheckpointStore
from tidelog.gazette.stores._postgres import AsyncPostgresCheckpointStore

__all__ = ["AsyncPostgresCheckpointStore", "PostgresCheckpointStore"]
