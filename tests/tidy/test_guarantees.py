"""Every promise of docs/reference/guarantees.md has a scope, a bound, and tests that refer to it.

Method: the page as text, and the text of the tests that it names.
"""

import re
from typing import Final

import pytest

from tidy.tree import ROOT, files, shown

PAGE: Final = (ROOT / "docs/reference/guarantees.md").read_text()
PROMISES: Final = dict(re.findall(r"^\*\*(G\d+)\.\*\* (.+?)\n\n", PAGE, re.MULTILINE | re.DOTALL))
CHECK: Final = re.compile(r"\]\(\.\./\.\./(tests/[\w/]+\.py)\)")
ID: Final = re.compile(r"\bG\d+\b")


def test_promises_are_numbered_in_a_row_but_for_those_that_are_not_in_use() -> None:
    numbers = [int(promise[1:]) for promise in PROMISES]
    assert len(numbers) == len(re.findall(r"^\*\*G", PAGE, re.MULTILINE))
    unused = {number for number in range(1, max(numbers) + 1) if number not in numbers}
    assert unused == {36, 37, 38, 39}


@pytest.mark.parametrize("promise", sorted(PROMISES))
def test_a_promise_has_a_scope_and_a_bound_and_names_tests_that_name_it(promise: str) -> None:
    text = PROMISES[promise]
    assert re.search(r"^\*Scope:\* .+\. \*Not promised:\* .+\.$", text, re.MULTILINE)
    checks = CHECK.findall(text)
    assert checks
    assert [name for name in checks if promise not in ID.findall((ROOT / name).read_text())] == []


def test_tests_and_readme_name_only_promises_that_are_made() -> None:
    named = {
        (shown(path), promise)
        for path in (*files(".py"), ROOT / "README.md")
        if path == ROOT / "README.md" or "tests" in path.parts
        for line in path.read_text().splitlines()
        if "docs/reference/guarantees.md" in line
        for promise in ID.findall(line)
    }
    assert [where for where in sorted(named) if where[1] not in PROMISES] == []
