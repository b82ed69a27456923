"""Every public method of the synchronous client ends within its bound; see ``test_bounds``."""

from pathlib import Path

import pytest

from tidelog_testing.faults.bounds import LATE_S, late, measured_sync
from tidelog_testing.faults.broken_servers import WAYS, Way, breakable_server


@pytest.mark.parametrize("way", WAYS)
def test_every_synchronous_call_ends_within_its_bound(tmp_path: Path, way: Way) -> None:
    with breakable_server(tmp_path / "data") as broken:
        found = measured_sync(broken.endpoint, lambda: broken.break_off(way), way)

    assert late(found, LATE_S) == {}, f"a second late: {late(found, 1.0)}"
