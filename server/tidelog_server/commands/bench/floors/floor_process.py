"""The process of a floor, as the benchmark has it: requests are lines of JSON, and so are the answers."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CommandError

_PACKAGE: Final = "tidelog_server.commands.bench.floors"


class FloorProcess:
    """A running process of a floor; one call at a time."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a module of this package with ``arguments``."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{_PACKAGE}.{module}", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment or child_environment(),
        )  # fmt: skip

    def ask(self, do: str, **arguments: object) -> Any:
        """Return the answer to a request: the result of the method ``do`` of the floor. Raises as ``answer``."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        """Return what the process prints next. Raises CommandError if it has ended."""
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise CommandError("the floor of the benchmark ended; its errors are above")
        return json.loads(line)

    def close(self) -> None:
        """End the process. Idempotent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
