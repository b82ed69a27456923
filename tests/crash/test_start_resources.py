"""A start that lacks a resource of the system reports it, changes nothing, and works once the resource is available.

Method: a real server process under limits set by prlimit, on a small tmpfs, and with system calls that strace makes
fail; and a check of the store that sets its own limits. Needs root.

Promises of docs/reference/guarantees.md: G15.
"""

import asyncio
import errno
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog_cli.child_environment import python_path
from tidelog_cli.exit_codes import ExitCode
from tidelog_server.core.limits import MIB
from tidelog_server.runtime.process_limits import MIN_ADDRESS_SPACE_BYTES, MIN_OPEN_FILES
from tidelog_server.storage.format.folder_errors import FolderForbiddenError, NoResourcesError
from tidelog_server.storage.recovery.open import OPEN_SPARE_BYTES, open_rocksdb_log_store
from tidelog_server.storage.rocksdb.engine import system_errno
from tidelog_testing.faults.damage import crashed_copy, damaged, digests, filled_store
from tidelog_testing.faults.system_faults import injected, injection, require_strace
from tidelog_testing.loads.workload import Load, create_channel, read_all
from tidelog_testing.oracles.history import History, Outcome, check, shown
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

DISK_BYTES = 128 * MIB


def refusal(folder: Path, *limits: str) -> ServerDiedError:
    """Start a server under limits that it must refuse, and return how it ended."""
    with pytest.raises(ServerDiedError) as died:
        ServerProcess(folder, wrapper=["prlimit", *limits])
    return died.value


@pytest.mark.parametrize("files", [12, 26, 40, MIN_OPEN_FILES - 1])
def test_too_few_file_descriptors_are_refused_before_anything_is_made(tmp_path: Path, files: int) -> None:
    ended = refusal(tmp_path / "log", f"--nofile={files}:{files}")
    assert ended.code == ExitCode.NO_RESOURCES
    assert ended.errors.startswith(
        f"tidelog: the limit of open files is {files}, and {MIN_OPEN_FILES} are needed: raise the limit"
    )
    assert ended.errors.count("\n") == 1
    assert not (tmp_path / "log").exists()


def test_a_soft_limit_of_files_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log", wrapper=["prlimit", f"--nofile=26:{MIN_OPEN_FILES}"]) as server:
        limits = Path(f"/proc/{server.pid}/limits").read_text().splitlines()
        (files,) = (line.split() for line in limits if line.startswith("Max open files"))
        assert files[3] == str(MIN_OPEN_FILES)


@pytest.mark.parametrize("size_bytes", [100 * MIB, 400 * MIB, MIN_ADDRESS_SPACE_BYTES - MIB])
def test_too_little_address_space_is_refused_before_anything_is_made(tmp_path: Path, size_bytes: int) -> None:
    ended = refusal(tmp_path / "log", f"--as={size_bytes}")
    assert ended.code == ExitCode.NO_RESOURCES
    assert ended.errors.startswith(f"tidelog: the limit of address space is {size_bytes // MIB} MiB")
    assert ended.errors.count("\n") == 1
    assert not (tmp_path / "log").exists()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the empty root of a small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tidelog-test", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(disk: Path, left_bytes: int) -> Path:
    """Fill a disk up to ``left_bytes`` with a file, which is returned."""
    found = os.statvfs(disk)
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, found.f_bavail * found.f_frsize - left_bytes))
    return ballast


async def killed_under_load(folder: Path) -> tuple[History, list[str]]:
    """Kill a server under load; return what its clients know."""
    history = History()
    with ServerProcess(folder) as server:
        vchannels = await create_channel(server.grpc, "a", 2)
        load = Load(history, vchannels, random.Random(0), padding=b" " + bytes(4_000))
        running = asyncio.ensure_future(load.run(server.grpc))
        while history.count(Outcome.OK) < 200:
            await asyncio.sleep(0.01)
        server.kill()
        await running
    return history, vchannels


@pytest.mark.parametrize("left_bytes", [0, 64 << 10, OPEN_SPARE_BYTES])
async def test_a_full_disk_at_the_start_is_no_data_loss_and_room_mends_it(disk: Path, left_bytes: int) -> None:
    history, vchannels = await killed_under_load(disk)
    ballast = fill(disk, left_bytes)
    before = digests(disk)
    for _ in range(3):
        with pytest.raises(ServerDiedError) as died:
            ServerProcess(disk)
        assert died.value.code == ExitCode.DISK_FULL, died.value
        assert "free some space" in died.value.errors
        assert "damaged" not in died.value.errors
        assert digests(disk) == before
    ballast.unlink()
    with ServerProcess(disk) as server:
        anomalies = check(history, await read_all(server.grpc, vchannels))
        assert not anomalies, shown(anomalies)


def test_a_full_disk_that_shall_have_a_new_store_says_so(disk: Path) -> None:
    folder = disk / "log"
    ballast = fill(disk, 0)
    flags = ["--storage.data_dir", str(folder), "--server.grpc_port", "0", "--server.http_port", "0"]
    command = [sys.executable, "-m", "tidelog_server", *flags]
    # Not a ServerProcess: that writes its stderr to a file next to the folder.
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": python_path()}, capture_output=True, check=False)
    assert ended.returncode == ExitCode.DISK_FULL, ended
    assert b"free some space" in ended.stderr
    ballast.unlink()
    ServerProcess(folder).kill()


@pytest.mark.parametrize(
    ("calls", "error", "code"),
    [
        ("pread64", "EIO", ExitCode.STORAGE_FAILED),
        ("pread64", "ENOMEM", ExitCode.NO_RESOURCES),
        ("openat", "EACCES", ExitCode.NO_PERMISSION),
        ("openat", "EMFILE", ExitCode.NO_RESOURCES),
        ("openat", "EIO", ExitCode.STORAGE_FAILED),
        ("openat", "EROFS", ExitCode.DATA_DIR_UNUSABLE),
    ],
)
async def test_what_the_system_refuses_at_the_start_is_no_data_loss(
    tmp_path: Path, calls: str, error: str, code: ExitCode
) -> None:
    folder, report = tmp_path / "log", tmp_path / "strace.txt"
    history, vchannels = await killed_under_load(folder)
    ServerProcess(folder).kill()
    before = digests(folder)
    # Python opens HEAD by its name, RocksDB reads tables by their descriptors.
    paths = [folder / "HEAD"] if calls == "openat" else list((folder / "db").glob("*.sst"))
    named = [option for path in paths for option in ("-P", str(path))]
    strace = [require_strace(), "-f", "-o", str(report), *named, *injection(calls, error, "1+")]
    with pytest.raises(ServerDiedError) as died:
        ServerProcess(folder, wrapper=strace)
    assert injected(report) > 0
    assert died.value.code == code, died.value
    assert "Traceback" not in died.value.errors
    assert digests(folder) == before
    with ServerProcess(folder) as server:
        anomalies = check(history, await read_all(server.grpc, vchannels))
        assert not anomalies, shown(anomalies)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resources")
    store = filled_store(folder / "live", flushed=40, unflushed=40)
    copy = crashed_copy(store, folder / "crashed")
    store.close()
    return copy


CHECK = """
import os, resource, sys
from tidelog_server.storage.recovery.child import main
{preparation}
sys.exit(main())
"""
# One file at a time, which Python's imports need; the listed directory is closed again.
LOWER_FILES = "resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')),) * 2)"
DROP_ROOT = "os.setuid(65534)"


@pytest.mark.parametrize(
    ("preparation", "expected"), [(LOWER_FILES, NoResourcesError), (DROP_ROOT, FolderForbiddenError)]
)
def test_what_rocksdb_is_refused_is_told_from_damage(
    crashed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preparation: str, expected: type[Exception]
) -> None:
    (tmp_path / "limited_check.py").write_text(CHECK.format(preparation=preparation))
    monkeypatch.syspath_prepend(tmp_path)
    with damaged(crashed, tmp_path / "copy") as folder:
        # All users may read the folders, but only the owner may read the tables.
        for level in (folder, folder / "db"):
            level.chmod(0o755)
        for path in (*folder.glob("*"), *(folder / "db").glob("[!0-9]*")):
            path.chmod(path.stat().st_mode | 0o055)
        for table in (folder / "db").glob("*.sst"):
            table.chmod(0o600)
        before = digests(folder)
        with pytest.raises(expected):
            open_rocksdb_log_store(folder, check="limited_check")
        assert digests(folder) == before
        open_rocksdb_log_store(folder).close()


READ_WITHOUT_DESCRIPTORS = """
import os, resource, sys
from pathlib import Path
from tidelog_testing.faults.damage import content_of
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.storage.recovery.open import open_rocksdb_log_store

store = open_rocksdb_log_store(Path(sys.argv[1]))
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
try:
    content_of(store)
except StorageUnreadableError as error:
    print(error.errno)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(sum(map(len, content_of(store).values())))
store.close()
"""


def test_a_read_without_a_file_descriptor_is_no_data_loss_and_works_once_there_is_one(
    crashed: Path, tmp_path: Path
) -> None:
    with damaged(crashed, tmp_path / "copy") as folder:
        environment = os.environ | {"PYTHONPATH": python_path()}
        command = [sys.executable, "-c", READ_WITHOUT_DESCRIPTORS, str(folder)]
        read = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert read.stdout.split() == [str(errno.EMFILE), "80"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (
            "IO error: No space left on device: While appending to file: /x/000009.log: No space left on device",
            "ENOSPC",
        ),
        ("IO error: While open a file for random read: /x/000009.sst: Too many open files", "EMFILE"),
        ("IO error: While pread offset 0 len 4: /x/000009.sst: Input/output error", "EIO"),
        ("IO error: While open a file for random read: /x/000009.sst: Permission denied", "EACCES"),
        ("No space left on device (os error 28)", "ENOSPC"),
        ("IO error: No such file or directory: While open: /x/000009.sst: No such file or directory", None),
        ("Corruption: block checksum mismatch in /x/Input/output error", None),
    ],
)
def test_errors_of_the_system_are_known_by_their_texts(text: str, number: str | None) -> None:
    assert system_errno(Exception(text)) == (number and getattr(errno, number))
