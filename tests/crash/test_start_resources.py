"""A start that lacks something of the system says what, changes nothing, and works once it is there.

Method: a real server process under limits that prlimit sets.

Promises of GUARANTEES.md: G15.
"""

from pathlib import Path

import pytest

from tidelog_server.cli.exit_codes import ExitCode
from tidelog_server.core.limits import MIB, MIN_ADDRESS_SPACE_BYTES, MIN_OPEN_FILES
from tidelog_testing.processes import ServerDiedError, ServerProcess


def refusal(folder: Path, *limits: str) -> ServerDiedError:
    """Start a server under limits that it must not start with, and return how it ended."""
    with pytest.raises(ServerDiedError) as died:
        ServerProcess(folder, wrapper=["prlimit", *limits])
    return died.value


@pytest.mark.parametrize("files", [12, 26, 40, MIN_OPEN_FILES - 1])
def test_too_few_file_descriptors_are_refused_before_anything_is_made(tmp_path: Path, files: int) -> None:
    ended = refusal(tmp_path / "log", f"--nofile={files}:{files}")
    assert ended.code == ExitCode.NO_RESOURCES
    assert ended.errors.startswith(
        f"tidelog: this process may open {files} files, and {MIN_OPEN_FILES} are needed: raise the limit"
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
    assert ended.errors.startswith(f"tidelog: this process may have {size_bytes // MIB} MiB of address space")
    assert ended.errors.count("\n") == 1
    assert not (tmp_path / "log").exists()
