"""An import that SIGKILL ends leaves a log that no server serves, and that the next import fills again."""

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tidelog_cli.child_environment import child_environment
from tidelog_server.recordlog.engine import LogSetupError
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.parts.engine_stores import create_log, open_in, state_of
from tidelog_testing.parts.entries import run_of_entries
from tidelog_testing.parts.folder_engine import FolderEngine

pytestmark = pytest.mark.crash

_WITHIN_S: Final = 60.0
# The log stores a record each 100 ms, so that the import is still running when it is killed.
_PROGRAM: Final = """
import sys, time
from pathlib import Path
from tidelog_testing.parts.folder_engine import FolderEngine
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.imports import folder_to_import
from tidelog_server.storage.recovery.gate import STORE_CHECK
from tidelog_testing.parts.engine_stores import NAME
class Slow(FolderEngine):
    def _store(self, value):
        time.sleep(float(sys.argv[2]))
        return super()._store(value)
folder = Path(sys.argv[1])
log = RecordLog(Slow(folder / "log"), SystemClock())
with folder_to_import(folder / "store", STORE_CHECK) as opened:
    opened.copy_into(log, NAME, lambda _: None)
"""


def importing(folder: Path, pause_s: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(folder), str(pause_s)], env=child_environment(), start_new_session=True
    )


def test_a_killed_import_is_never_served_and_the_next_one_has_everything(tmp_path: Path) -> None:
    with closing(open_rocksdb_log_store(tmp_path / "store")) as store:
        store.create_vchannels([1])
        for entry in run_of_entries(1, 60, size_bytes=500_000):
            store.sync(store.write([entry]))
        state = state_of(store)
    # The first group has two parts, behind two FENCEs.
    create_log(FolderEngine(tmp_path / "log"))
    for records in (4, 10, 25):
        begin = FolderEngine(tmp_path / "log").bounds().end
        killed = importing(tmp_path, 0.1)
        deadline_s = time.monotonic() + _WITHIN_S
        while FolderEngine(tmp_path / "log").bounds().end < begin + records:
            assert killed.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.005)
        killed.kill()
        killed.wait()
        with pytest.raises(LogSetupError, match="import has not ended"):
            open_in(tmp_path)
    assert importing(tmp_path, 0).wait(_WITHIN_S) == 0
    with closing(open_in(tmp_path)) as served:
        assert state_of(served) == state
