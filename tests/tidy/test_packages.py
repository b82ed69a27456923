"""A package directory has few modules, and no module imports itself through others.

Method: the files of each directory, and the graph of the import statements of all hand-written modules, at their top or
within functions. Imports for type checkers count too, except those of a package's `__init__`, which exports names at
their first access.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tidy.tree import ROOT, parsed, python_files, shown

MAX_MODULES = 20
MAX_MODULES_AT_THE_TOP_OF_THE_CLIENT = 12
CLIENT = ROOT / "client"
SERVER = ROOT / "server"


def modules(root: Path) -> dict[str, Path]:
    """Return the hand-written modules below `root`, by full name."""
    named = {path.relative_to(root).with_suffix("").parts: path for path in python_files() if root in path.parents}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): path for parts, path in named.items()}


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules among `known` that a module imports."""
    ignored = for_type_checkers(path) if path.name == "__init__.py" else set()
    for node in ast.walk(parsed(path)):
        if node in ignored:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in names if {name, node.module} & known.keys())


def for_type_checkers(path: Path) -> set[ast.AST]:
    """Return the nodes of a module that only type checkers evaluate."""
    blocks = [node for node in parsed(path).body if isinstance(node, ast.If)]
    return {node for block in blocks if "TYPE_CHECKING" in ast.unparse(block.test) for node in ast.walk(block)}


@pytest.mark.parametrize("root", [CLIENT, SERVER])
def test_no_package_directory_has_more_than_twenty_modules(root: Path) -> None:
    counts = Counter(path.parent for path in modules(root).values())
    assert {shown(folder): count for folder, count in counts.items() if count > MAX_MODULES} == {}


def test_the_top_of_the_client_has_few_modules() -> None:
    counts = Counter(path.parent for path in modules(CLIENT).values())
    assert counts[CLIENT / "tidelog"] <= MAX_MODULES_AT_THE_TOP_OF_THE_CLIENT


@pytest.mark.parametrize("root", [CLIENT, SERVER])
def test_no_module_imports_itself_through_others(root: Path) -> None:
    known = modules(root)
    try:
        TopologicalSorter({name: set(imported(path, known)) for name, path in known.items()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
