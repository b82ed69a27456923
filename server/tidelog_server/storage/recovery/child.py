"""The start-up gate's child: opens a view of the database read-only, checks it, prints one JSON line.

``python -m tidelog_server.storage.recovery.child <data folder> <empty folder for the view> <seconds>``

A separate process, because a damaged MANIFEST can make RocksDB spin indefinitely while it opens, and a process can be
killed at a deadline: by its parent or, if that has ended, by an alarm.
"""

import errno
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.storage.format.cluster_file import read_identity
from tidelog_server.storage.format.head_file import read_head
from tidelog_server.storage.log_state import LogState
from tidelog_server.storage.recovery.checks import check_store
from tidelog_server.storage.recovery.view import make_recovery_view
from tidelog_server.storage.rocksdb.engine import close_engine, engine_errors, open_engine
from tidelog_server.storage.rocksdb.snapshot import StoredLog, stored_log

CheckRecords = Callable[[StoredLog], None]
"""Checks records of upper layers in a store whose own checks passed. Raises like ``inspect``."""


def inspect(folder: Path, view_path: Path, check_records: CheckRecords | None = None) -> dict[str, object]:
    """Return what the store in ``folder`` recovers to: ``digest`` and ``torn`` (see GateVerdict), and its CopyFacts.

    The head is checked if it exists; the caller decides whether it must. Invariant: everything that a start reads
    before it serves is read here as well, so that damage is found before the first write.

    Raises:
        DataLossError: Data is missing or damaged.
        StorageUnreadableError: The system refused to read it.
        OSError: The folder could not be read, or the view not made.
    """
    read_identity(folder)
    torn = make_recovery_view(folder / "db", view_path)
    with engine_errors("opening the database"):
        engine = open_engine(view_path, read_only=True)
    try:
        index = check_store(engine, view_path, read_head(folder / "HEAD"))
        if check_records is not None:
            check_records(stored_log(engine, index))
    finally:
        close_engine(engine)
    head = LogState(index.store, index.tails).head
    return {
        "digest": index.digest(),
        "torn": torn,
        "incarnation": index.store.incarnation.hex(),
        "sequence": head.sequence,
        "chain_hash": head.chain_hash.hex(),
        "last_tick": head.last_tick,
    }


def main(check_records: CheckRecords | None = None) -> int:
    """Print the answer for the folder given on the command line; exits with 0 once it is printed."""
    # The default action of the signal ends the process even while RocksDB holds the GIL.
    signal.alarm(int(sys.argv[3]) + 1)
    try:
        answer = inspect(Path(sys.argv[1]), Path(sys.argv[2]), check_records)
    except DataLossError as error:
        answer = {"problem": error.message, "values": error.values}
    except StorageUnreadableError as error:
        answer = {"system_error": (error.errno, error.values["cause"])}
    except OSError as error:
        answer = {"system_error": (error.errno, error.strerror or str(error), error.filename)}
    except MemoryError:
        answer = {"system_error": (errno.ENOMEM, "out of memory")}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
