"""What the C library does with freed memory. Method: a process that counts its own page faults."""

import json
import platform
import subprocess
import sys

import pytest

from tidelog_server.runtime.allocator import keep_freed_memory

ROUNDS = 50
# As responses in flight.
BUFFERS = 8
BUFFER_BYTES = 1 << 20
FAULTS_OF_A_ROUND = BUFFERS * BUFFER_BYTES // 4_096

PROGRAM = f"""
import ctypes, json, resource, sys
from tidelog_server.runtime.allocator import keep_freed_memory
is_set = sys.argv[1] == "set" and keep_freed_memory({{}})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    [ctypes.create_string_buffer({BUFFER_BYTES}) for _ in range({BUFFERS})]
print(json.dumps([is_set, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]))
"""


def faults(argument: str) -> tuple[bool, int]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, argument], capture_output=True, text=True, check=True)
    is_set, count = json.loads(done.stdout)
    return is_set, count


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these limits")
def test_buffers_reuse_the_pages_of_those_before() -> None:
    is_set, count = faults("set")

    assert is_set
    # Without the settings, each round faults in most pages again.
    assert count < 2 * FAULTS_OF_A_ROUND < faults("unset")[1]


@pytest.mark.parametrize(
    "name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"]
)
def test_settings_of_the_environment_win(name: str) -> None:
    assert not keep_freed_memory({name: "1"})
