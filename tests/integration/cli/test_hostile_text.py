"""Whatever text, number or file a caller passes, a command succeeds or ends with one sentence; never with a traceback.

Method: every command of the tree, so a new one too, with every form of hostile text in its positional arguments, and
forms by turns in its options. The commands run in this process, against a real server.
"""

import gc
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from tidelog_cli import main
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.parts.hostile_texts import TEXTS, Command, commands, hostile_files
from tidelog_testing.servers.processes import ServerProcess

# These start Java, or measure the disk: their options have every sixth form, those of others every second one.
_SLOW = {"doctor", "pipeline"}
# Options with which a command ends soon if its other arguments are valid.
_BOUNDED = {"top": ["--count", "1", "--interval", "0.1"], "bench": ["--folder", "/no/such/folder"]}
_GROUPS = {name: list(several) for name, several in groupby(commands(), lambda each: each.path[0])}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    output: str
    errors: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("hostile") / "log") as process:
        yield process


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {**TEXTS, **hostile_files(tmp_path_factory.mktemp("files"))}


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch, stdin: bytes = b"") -> Ended:
    """Run a command with streams of its own, as ``main`` finds them in a process."""
    streams = [io.BytesIO(stdin), io.BytesIO(), io.BytesIO()]
    before = dict(os.environ)
    with monkeypatch.context() as patched:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patched.setattr(sys, name, io.TextIOWrapper(stream, encoding="utf-8"))
        try:
            main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            for printed in (sys.stdout, sys.stderr):
                printed.flush()
            gc.enable()
            os.environ.clear()
            os.environ.update(before)
        return Ended(code, streams[1].getvalue().decode(), streams[2].getvalue().decode())


def problem_of(command: Command, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return what is wrong with how the command ended; None if nothing is."""
    try:
        ended = run([*command.path, *arguments], monkeypatch)
    except Exception as error:  # noqa: BLE001 - it would be a traceback
        return f"raised {error!r}"
    told = [line for line in ended.errors.splitlines() if line.startswith("tidelog: ")]
    if ended.code in (ExitCode.OK, *([1, 2, 3, 8, 9] if command.path[0] in ("check", "doctor") else [])):
        return None
    if "Traceback" in ended.errors or len(told) != 1:
        return f"exited with {ended.code} and printed {ended.errors[-300:]!r}"
    return None if ended.code in set(ExitCode) else f"exited with {ended.code}, which is not documented"


@pytest.mark.parametrize("name", _GROUPS)
def test_every_command_with_every_form_succeeds_or_says_why_not(
    name: str, server: ServerProcess, forms: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable, value in {
        "TIDELOG_ENDPOINT": server.grpc, "TIDELOG_HTTP_ENDPOINT": server.http, "TIDELOG_TIMEOUT": "5",
    }.items():  # fmt: skip
        monkeypatch.setenv(variable, value)
    problems = []
    for command in _GROUPS[name]:
        for number, (form, text) in enumerate(forms.items()):
            # After two dashes `serve` has no arguments: it would start.
            runs = [] if name == "serve" and text == "--" else [command.arguments(text)]
            if (options := command.options()) and number % (6 if name in _SLOW else 2) == 0:
                runs.append([*command.needed(), options[number % len(options)].opts[0], text])
            bounds = _BOUNDED.get(name, [])
            for before in runs:
                # Before them, for those after two dashes; after them, because the last value of an option counts.
                arguments = [*bounds, *before, *([] if before is runs[0] else bounds)]
                if (problem := problem_of(command, arguments, monkeypatch)) is not None:
                    shown = [each[:40] for each in arguments]
                    problems.append(f"{' '.join(command.path)} with {form}, {shown}: {problem}")
    assert not problems, "\n".join(problems[:40])
