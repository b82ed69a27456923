"""What a store has after a restore to a tick: a model on the rows that ``store_rows`` returns."""

from typing import Any

from tidelog_testing.oracles.store_rows import Rows

_Table = dict[tuple[Any, ...], Any]


def chunks_of(rows: Rows) -> _Table:
    """Return chunks without sequences and hashes: trimmed entries are not replayed, so those differ."""
    return {
        key: {name: value for name, value in row.items() if not name.endswith(("_sequence", "_hash"))}
        for key, row in rows["chunks"].items()
    }


def tails_of(rows: Rows) -> _Table:
    """Return the ticks of tails, and what the vchannels have: trimmed entries that are not replayed do not count."""
    counts = {"batches": "trimmed_batches", "messages": "trimmed_messages", "columns_bytes": "trimmed_bytes"}
    return {
        key: [*(row[name] for name in ("trim_tick", "last_tick", "last_base_tick"))]
        + [row[name] - row[trimmed] for name, trimmed in counts.items()]
        for key, row in rows["tails"].items()
    }


def windows_until(windows: _Table, tick: int) -> _Table:
    """Return windows that remember all their batches without those after a tick.

    The epoch stays, so that fenced producers stay fenced.
    """
    kept = {}
    for key, window in windows.items():
        results = [result for result in window["results"] if result[0] <= tick]
        last_sequence = window["last_sequence"] - len(window["results"]) + len(results)
        kept[key] = window | {"results": results, "last_sequence": last_sequence}
    return kept


def folds_until(was: Rows, later: Rows) -> _Table:
    """Return the snapshots from which logs are loaded: those of the tick.

    A log that has a later snapshot and was never trimmed is loaded from its beginning.
    """
    moved = {key for key, tick in was["folds"].items() if later["folds"][key] != tick}
    trimmed = {key for key in moved if later["tails"][key[0],]["trim_tick"]}
    return {key: tick for key, tick in was["folds"].items() if key not in moved - trimmed}


def positions_until(positions: _Table, tick: int) -> _Table:
    """Return positions that are moved back to a tick if they are beyond it; what a call took beyond it is unknown."""
    return {
        key: position if position["next_tick"] <= tick + 1 else position | {"next_tick": tick + 1, "taken": b""}
        for key, position in positions.items()
    }
