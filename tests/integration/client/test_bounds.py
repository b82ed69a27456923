"""Every public method of the client that waits for its server ends within its bound, whatever the server does.

Method: one row for each method of the asynchronous classes, found by introspection, so that a method without a row
fails the test. A server serves a client and then stops answering, in one of four ways; all rows run at once, on the
handles that were in use and on a client that was never connected. ``test_bounds_sync`` has the synchronous twins.
"""

import asyncio
from pathlib import Path

import pytest

from tidelog_testing.faults.bounds import (
    CASES,
    CLASSES,
    INTERNAL,
    LATE_S,
    WAITS_FOR_NO_SERVER,
    late,
    measured_async,
    methods_of,
)
from tidelog_testing.faults.broken_servers import WAYS, Way, breakable_server


def test_every_public_method_has_a_row() -> None:
    found = {name for kind in CLASSES for name in methods_of(kind)}
    excused = {f"{kind}.{name}" for kind, names in WAITS_FOR_NO_SERVER.items() for name in names.split()}

    assert found - excused - INTERNAL == CASES.keys()


@pytest.mark.parametrize("way", WAYS)
def test_every_call_ends_within_its_bound(tmp_path: Path, way: Way) -> None:
    with breakable_server(tmp_path / "data") as broken:
        found = asyncio.run(measured_async(broken.endpoint, lambda: broken.break_off(way), way))

    assert late(found, LATE_S) == {}, f"a second late: {late(found, 1.0)}"
