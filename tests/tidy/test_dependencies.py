"""The base install stays small, and the pinned versions are the requested ones.

Method: import the client in a fresh interpreter and list the loaded modules; compare pyproject.toml with
constraints.txt.
"""

import re
import subprocess
import sys
import tomllib
from itertools import chain

import pytest

from tidy.tree import ROOT

# grpc itself imports some of its siblings if they are installed, so it is imported before the count.
LIST_WHAT_CAME_ALONG = """
import sys
import crc32c, google.protobuf, grpc, grpc.aio
before = set(sys.modules)
import {module}
came = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(came - set(sys.stdlib_module_names)))
"""


@pytest.mark.parametrize("module", ["tidelog", "tidelog.testing"])
def test_importing_the_client_pulls_in_no_optional_dependency(module: str) -> None:
    program = LIST_WHAT_CAME_ALONG.format(module=module)
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True, timeout=240
    )
    assert set(done.stdout.split()) <= {"google", "grpc", "tidelog"}


def test_every_dependency_is_pinned_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked_for = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[^a-z0-9.-]", requirement)[0] for requirement in asked_for} - {"tidelog"}
    constraints = (ROOT / "constraints.txt").read_text()
    pinned = set(re.findall(r"^([a-z0-9.-]+)==[^\n]+\\\n +--hash=sha256:", constraints, re.MULTILINE))
    assert names - pinned == set()
