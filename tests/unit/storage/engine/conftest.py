"""What the tests of logs in an engine share."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_testing.parts.engine_stores import append_run, open_in


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EngineLogStore]:
    """A store with entries in two vchannels, the first of which is trimmed."""
    with closing(open_in(tmp_path)) as opened:
        opened.create_vchannels([1, 2])
        append_run(opened, 1, 100, 30)
        append_run(opened, 2, 100, 10)
        opened.trim(1, 300)
        yield opened
