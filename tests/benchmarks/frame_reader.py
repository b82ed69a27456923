"""Reads a log once, as one process of ``benchmarks frames``, and prints its figures as JSON."""

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any, Final

import pyarrow

from benchmarks.frames import BYTES
from tidelog import AsyncClient, Batch, Client
from tidelog.wire.columns import encode_payloads

_STATUS: Final = Path("/proc/self/status")
_RESET: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"
_NO_LIMIT: Final = 1 << 40


def main() -> None:
    """Read as the argument orders, and print one line."""
    order = json.loads(sys.argv[1])
    # What a first use loads is not the memory, and not the time, of a reading.
    Batch("warm-up/0", encode_payloads([b""]), range(1, 2)).to_polars()
    read = _into_bytes if order["kind"] == BYTES else _into_frame
    print(json.dumps(read(order)), flush=True)


def _into_frame(order: dict[str, Any]) -> dict[str, float]:
    with Client(order["endpoint"]) as client:
        client.wal_name()
        scan = client.scan(order["vchannel"])
        base_bytes, start_s = _base_bytes(), time.perf_counter()
        frame: Any = getattr(scan, f"to_{order['kind']}")(max_bytes=_NO_LIMIT)
        seconds = time.perf_counter() - start_s
        peak_bytes = _memory_bytes("VmHWM") - base_bytes
        assert len(frame) == order["messages"]
        table_bytes = frame.nbytes if isinstance(frame, pyarrow.Table) else 0
    return {"seconds": seconds, "peak_bytes": peak_bytes, "table_bytes": table_bytes}


def _into_bytes(order: dict[str, Any]) -> dict[str, float]:
    return asyncio.run(_payloads(order))


async def _payloads(order: dict[str, Any]) -> dict[str, float]:
    """Make a bytes object of each payload, and keep none, as ``bench scan`` does."""
    async with AsyncClient(order["endpoint"]) as client:
        await client.wal_name()
        base_bytes, start_s = _base_bytes(), time.perf_counter()
        count = 0
        async with client.scan(order["vchannel"]) as scan:
            async for batch in scan:
                count += len(batch.payloads)
        seconds = time.perf_counter() - start_s
        assert count == order["messages"]
    return {"seconds": seconds, "peak_bytes": _memory_bytes("VmHWM") - base_bytes, "table_bytes": 0}


def _base_bytes() -> int:
    """Return the resident memory, from which the peak counts from now on."""
    _RESET.write_text(_RESET_PEAK)
    return _memory_bytes("VmRSS")


def _memory_bytes(name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


if __name__ == "__main__":
    main()
