"""The files of the repository, for the tidy tests."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePath
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
GENERATED: Final = ROOT / "client" / "tidelog" / "v1"


@cache
def files(*suffixes: str) -> tuple[Path, ...]:
    """Return the files that git tracks or would track, in order; with suffixes, only those that end with one."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    paths = sorted({ROOT / name for name in names if name})
    return tuple(path for path in paths if path.is_file() and (not suffixes or path.suffix in suffixes))


def python_files() -> tuple[Path, ...]:
    """Return the Python files except those of protoc."""
    return tuple(path for path in files(".py") if GENERATED not in path.parents)


def is_generated(path: PurePath) -> bool:
    """Return whether a generator of ours writes the Python file."""
    return path.name.startswith("_generated") or "generated" in path.parts[:-1]


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(), filename=str(path))


def shown(path: Path) -> str:
    """Return a path relative to the root of the repository."""
    return path.relative_to(ROOT).as_posix()


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return the full names of all imports of a Python file, at its top or within functions."""
    return tuple(_imports(parsed(path)))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
