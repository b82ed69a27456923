"""Gives the copy of a store its own identity."""

from contextlib import closing
from pathlib import Path

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.codec import unpack_store
from tidelog_server.storage.format.head_file import HeadFile, read_head
from tidelog_server.storage.format.keys import STORE_KEY
from tidelog_server.storage.rocksdb.engine import close_engine, engine_errors, open_engine
from tidelog_server.storage.rocksdb.index import write_store_row


def restamp(path: Path, incarnation: bytes) -> None:
    """Change the incarnation of the data folder ``path``, which no process uses and which has just passed a check.

    After a crash in between, HEAD and the database differ, so that no start accepts the folder.

    Raises:
        DataLossError: It cannot be opened.
        OSError: The system refused.
    """
    head = read_head(path / "HEAD")
    assert head is not None
    with engine_errors("opening the database"):
        engine = open_engine(path / "db", read_only=False)
        try:
            row = engine.index.get(STORE_KEY)
            if row is None:
                raise DataLossError("the store's own row is missing in the index")
            store = unpack_store(row)._replace(incarnation=incarnation)
            engine_sequence = write_store_row(engine, store)
        finally:
            close_engine(engine)
    with closing(HeadFile.open(path / "HEAD")) as file:
        file.write(
            head._replace(
                generation=head.generation + 1, incarnation=incarnation, engine_sequence=engine_sequence, is_clean=True
            )
        )
