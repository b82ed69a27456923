"""The core suite stays a suite of every feature, and each soak test has a short form in the core or the extended suite.

Method: the tables of ``tidelog_testing.suites`` against the tree. A short form is a test of the same module without the
mark ``soak`` that calls the same helper of the module, with the same name if the call has one, as in
``bench(folder, "append")``. A mark on one value of a parameter leaves the test with its other values.
"""

import ast
from collections.abc import Iterator

import pytest

from tidelog_testing.suites import EXTENDED, ON_ENGINE, is_extended
from tidy.tree import ROOT, parsed, shown

Function = ast.FunctionDef | ast.AsyncFunctionDef

# One short form of each kind of test that the extended suite has more of.
CORE = (
    "tests/crash/test_faults_storage.py",
    "tests/crash/test_kill_failpoints.py",
    "tests/crash/test_kill_mailboxes.py",
    "tests/crash/test_kill_mixed.py",
    "tests/crash/test_kill_storm.py",
    "tests/integration/cluster/test_cluster.py",
    "tests/integration/spark/test_read.py",
    "tests/integration/spark/test_stream_read.py",
    "tests/integration/spark/test_write.py",
)


def test_every_module_of_the_extended_suite_exists() -> None:
    assert [name for modules in EXTENDED.values() for name in modules if not (ROOT / name).is_file()] == []


def test_all_that_runs_on_a_log_in_an_engine_exists() -> None:
    # A module that is not there would not be missed: the second run would be shorter.
    assert [name for name in ON_ENGINE if not (ROOT / name).exists()] == []


def test_no_module_is_in_the_extended_suite_for_two_reasons() -> None:
    names = [name for modules in EXTENDED.values() for name in modules]
    assert len(set(names)) == len(names)


def test_the_core_keeps_a_short_form_of_each_kind() -> None:
    assert [name for name in CORE if is_extended(f"{name}::test_x") or not (ROOT / name).is_file()] == []


def test_every_folder_of_integration_tests_is_in_the_core() -> None:
    folders = {path.parent for path in (ROOT / "tests/integration").glob("*/test_*.py")}
    in_core = {
        path.parent
        for path in (ROOT / "tests/integration").glob("*/test_*.py")
        if not is_extended(path.relative_to(ROOT).as_posix())
    }
    assert folders == in_core


def _has_mark(node: ast.AST) -> bool:
    return any(each.attr == "soak" for each in ast.walk(node) if isinstance(each, ast.Attribute))


def _is_soak(test: Function) -> bool:
    """Return whether the whole test is marked, and not only values of its parameters."""
    return any(ast.unparse(decorator) == "pytest.mark.soak" for decorator in test.decorator_list)


def _helpers(module: ast.Module) -> set[str]:
    """Return the names that a module defines at its top, without its tests."""
    functions = {node.name for node in module.body if isinstance(node, Function)}
    assigned = {
        target.id for node in module.body if isinstance(node, ast.Assign) for target in node.targets
        if isinstance(target, ast.Name)
    }  # fmt: skip
    return {name for name in functions | assigned if not name.startswith("test_")}


def _calls(test: Function, helpers: set[str]) -> set[tuple[str, str]]:
    """Return the helpers that a test calls, each with the first argument that is a name in quotes."""
    found = set()
    for call in ast.walk(test):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in helpers:
            texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
            names = [text for text in texts if isinstance(text, str) and text.isidentifier()]
            found.add((call.func.id, names[0] if names else ""))
    return found


def without_a_short_form(module: ast.Module) -> Iterator[str]:
    """Yield the soak tests of a module that have no short form."""
    tests = [node for node in module.body if isinstance(node, Function) and node.name.startswith("test_")]
    marks = [
        node for node in module.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    if any(_has_mark(node) for node in marks):
        yield from (test.name for test in tests)
        return
    helpers = _helpers(module)
    short = set[tuple[str, str]]().union(*(_calls(test, helpers) for test in tests if not _is_soak(test)))
    yield from (test.name for test in tests if _is_soak(test) and not _calls(test, helpers) & short)


def test_every_soak_test_has_a_short_form_in_another_suite() -> None:
    modules = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if _has_mark(parsed(path))]
    assert len(modules) >= 10
    assert [f"{shown(path)}::{name}" for path in modules for name in without_a_short_form(parsed(path))] == []


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("def test_short():\n    storm(2)", []),
        ("def test_short():\n    storm('b', 2)", ["test_long"]),
        ("@pytest.mark.soak\ndef test_longer():\n    storm(2)", ["test_long", "test_longer"]),
        ("def test_other():\n    print(2)", ["test_long"]),
        ("pytestmark = [pytest.mark.soak]\ndef test_short():\n    storm(2)", ["test_long", "test_short"]),
    ],
    ids=["a sibling", "of another name", "soak as well", "another call", "the whole module"],
)
def test_a_short_form_is_an_unmarked_test_with_the_same_call(rest: str, expected: list[str]) -> None:
    text = f"def storm(*_):\n    pass\n\n@pytest.mark.soak\ndef test_long():\n    storm(200)\n\n{rest}\n"
    assert list(without_a_short_form(ast.parse(text))) == expected
