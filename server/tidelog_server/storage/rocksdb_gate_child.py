"""The start-up gate's child: opens the database read-only, checks it, prints one JSON line.

``python -m tidelog_server.storage.rocksdb_gate_child <data folder>``

A process of its own because a damaged MANIFEST can make RocksDB spin for ever, or delete healthy files, while it
opens. Read-only it deletes nothing, and a process can be killed at a deadline.
"""

import json
import sys
from pathlib import Path

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.head_file import read_head
from tidelog_server.storage.rocksdb_check import check_store
from tidelog_server.storage.rocksdb_engine import close_engine, engine_errors, open_engine
from tidelog_server.storage.wal_scan import torn_wals


def inspect(folder: Path) -> dict[str, object]:
    """Return what the store in ``folder`` recovers to: ``digest`` and ``torn`` (see GateVerdict).

    The head is checked if there is one; whether there must be one is for the caller to say.

    Raises:
        DataLossError: Something is missing or damaged. Nothing was modified.
    """
    database_path = folder / "db"
    with engine_errors("opening the database"):
        engine = open_engine(database_path, read_only=True)
    try:
        index = check_store(engine, database_path, read_head(folder / "HEAD"))
    finally:
        close_engine(engine)
    return {"digest": index.digest(), "torn": torn_wals(database_path)}


def main() -> int:
    """Print the answer for the folder given on the command line; always exit 0 once it is printed."""
    try:
        answer = inspect(Path(sys.argv[1]))
    except DataLossError as error:
        answer = {"problem": error.message, "values": error.values}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
