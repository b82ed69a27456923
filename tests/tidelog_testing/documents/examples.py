"""Pages with examples: read them, and run the examples."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidelog.testing import start_server
from tidelog_cli.child_environment import child_environment
from tidelog_testing.servers.processes import PYTHON_PATH, ROOT

ENDPOINT: Final = "127.0.0.1:7420"
"""Endpoint of the server in the examples."""
# What runs until it is stopped, and what installs.
_LEFT_OUT: Final = ("$ tidelog tail -f", "$ tidelog serve", "$ . .venv", "$ python3 -m venv")
_COMMAND: Final = f"#!/bin/sh\nexec {sys.executable} -c 'from tidelog_cli import main; main()' \"$@\"\n"


def page(name: str) -> str:
    """Return the text of ``docs/guides/<name>``."""
    return (ROOT / "docs" / "guides" / name).read_text()


def run_example(name: str, changes: Mapping[str, str]) -> dict[str, Any]:
    """Run the Python examples of ``docs/guides/<name>`` as one program in this process; return the names it defines.

    Args:
        name: The page.
        changes: Texts of the example to replace, such as an endpoint or a folder, and their replacements.
    """
    program = _example_of(page(name))
    for text, other in changes.items():
        assert text in program, f"the example of {name} has no {text}"
        program = program.replace(text, other)
    names: dict[str, Any] = {}
    exec(compile(program, name, "exec"), names)
    return names


def output_of_example(text: str, folder: Path) -> str:
    """Run the Python examples of a page as one program against its own server; return what it prints."""
    with start_server() as running:
        return output_of(_example_of(text), running.endpoint, folder)


def examples_of(text: str, language: str = "python") -> list[str]:
    """Return the examples of a page in a language, or ``console``, in order."""
    return [str(example) for example in re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def output_of(program: str, endpoint: str, folder: Path) -> str:
    """Run a program of a page against the server at ``endpoint``, which must succeed, and return what it prints."""
    file = folder / "example.py"
    file.write_text(program.replace(ENDPOINT, endpoint))
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=240, check=False,
        env={"PYTHONPATH": f"{ROOT / 'client'}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), f"{program}\nended with {done.stderr}"
    return done.stdout


def run_commands(console: str, endpoint: str, folder: Path) -> str:
    """Run the lines behind ``$`` in a shell, which must succeed without waiting for input; return what they print."""
    command = folder / "tidelog"
    command.write_text(_COMMAND)
    command.chmod(0o755)
    lines = [line[2:] for line in console.splitlines() if line.startswith("$ ") and not line.startswith(_LEFT_OUT)]
    environment = child_environment() | {"TIDELOG_ENDPOINT": endpoint}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{console}\nended with {done.stderr}"
    return done.stdout


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the repository as a user does, with these arguments of Python; it must succeed."""
    path = os.pathsep.join([str(ROOT), PYTHON_PATH])
    variables = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [sys.executable, *arguments], env=os.environ | variables, cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3_000:]
    return ran


def _example_of(text: str) -> str:
    examples = examples_of(text)
    assert examples
    return "\n".join(examples)
