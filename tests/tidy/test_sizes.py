"""Functions and modules stay short, and each module has a docstring.

Method: the syntax trees of all Python files. A generated module is as long as what it is made of: classes of limited
length, or the reasons of the protocol.
"""

import ast
from collections import Counter

from tidy.tree import ROOT, is_generated, parsed, python_files, shown

MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 600
MAX_PACKAGE_MODULES = 20
SERVER = ROOT / "server" / "tidelog_server"


def test_no_function_is_longer_than_seventy_lines() -> None:
    too_long = [
        f"{shown(path)}:{node.lineno} {node.name} has {lines} lines"
        for path in python_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and (lines := node.end_lineno - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert too_long == []


def test_no_module_is_longer_than_six_hundred_lines() -> None:
    written = [path for path in python_files() if not is_generated(path)]
    lines_by_module = {shown(path): len(path.read_text().splitlines()) for path in written}
    assert {name: lines for name, lines in lines_by_module.items() if lines > MAX_MODULE_LINES} == {}


def test_every_module_has_a_docstring() -> None:
    silent = [shown(path) for path in python_files() if not ast.get_docstring(parsed(path))]
    assert silent == []


def test_no_package_of_the_server_has_more_than_twenty_modules() -> None:
    modules = Counter(
        shown(path.parent) for path in python_files() if SERVER in path.parents and path.name != "__init__.py"
    )
    assert {package: count for package, count in modules.items() if count > MAX_PACKAGE_MODULES} == {}
