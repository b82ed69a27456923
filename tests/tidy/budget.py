"""The budget of each package of the client and the server, in hand-written lines: ``budget.txt`` and its rules.

Every line of a Python file counts. Generated code and examples are left out. A package is a folder below
``client/tidelog``, ``client/tidelog_cli`` or ``server/tidelog_server`` with everything in it, or the modules beside
these folders. ``make budget`` writes the present numbers into the table.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from tidy.tree import ROOT, is_generated, python_files

TABLE: Final = Path(__file__).with_name("budget.txt")
GROWTH: Final = 0.02
"""A package may exceed its budget by this part of it."""
SLACK: Final = 0.05
"""A budget may exceed its package by this part of the package, or by ``SLACK_LINES``: a deletion lowers the budget."""
SLACK_LINES: Final = 20


class Budget(NamedTuple):
    """The lines that a package may have, and the reason for the number."""

    lines: int
    reason: str


def package_of(path: PurePath) -> str | None:
    """Return the package of a file, by its path below the root; None if its lines do not count."""
    side, *folders = path.parts[:-1]
    if side not in ("client", "server") or is_generated(path) or "examples" in folders:
        return None
    return "/".join((side, *folders[:2]))


def lines_by_package() -> dict[str, int]:
    """Return the hand-written lines of each package."""
    lines: Counter[str] = Counter()
    for path in python_files():
        if package := package_of(path.relative_to(ROOT)):
            lines[package] += len(path.read_text().splitlines())
    return dict(lines)


def read(text: str) -> dict[str, Budget]:
    """Return the budgets of a table: a line for each package with its lines and the reason."""
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line and not line.startswith("#")]
    return {package: Budget(int(lines), reason[0] if reason else "") for package, lines, *reason in rows}


def problems(lines: Mapping[str, int], budgets: Mapping[str, Budget]) -> list[str]:
    """Return what contradicts the budgets, each with the package, its lines, its budget and what to do."""
    found = []
    for package in sorted({*lines, *budgets}):
        count, budget = lines.get(package), budgets.get(package)
        if budget is None:
            found.append(
                f"{package}: {count} lines, no budget: add a line to budget.txt with the reason of the package"
            )
        elif count is None:
            found.append(f"{package}: no such package, budget {budget.lines}: remove its line from budget.txt")
        elif not budget.reason:
            found.append(f"{package}: {count} lines, budget {budget.lines}: state the reason in the same line")
        elif is_exceeded(count, budget):
            found.append(
                f"{package}: {count} lines, budget {budget.lines}: remove code, or raise the number in budget.txt and "
                "state the reason in the same line"
            )
        elif budget.lines > count * (1 + SLACK) and budget.lines > count + SLACK_LINES:
            found.append(f"{package}: {count} lines, budget {budget.lines}: lower the number, with `make budget`")
    return found


def is_exceeded(count: int, budget: Budget) -> bool:
    """Return whether a package has more lines than its budget allows."""
    return count > budget.lines * (1 + GROWTH)


def refreshed(lines: Mapping[str, int], budgets: Mapping[str, Budget]) -> dict[str, Budget]:
    """Return budgets that allow the present lines.

    A budget falls to the lines of its package. It rises only if it is exceeded: a sum of small growths needs a reason
    too. The reason of a new or a raised budget is empty, which is a problem until it is written.
    """
    return {package: _refreshed(count, budgets.get(package)) for package, count in sorted(lines.items())}


def _refreshed(count: int, budget: Budget | None) -> Budget:
    if budget is None or is_exceeded(count, budget):
        return Budget(count, "")
    return budget._replace(lines=min(count, budget.lines))


def table_of(head: str, budgets: Mapping[str, Budget]) -> str:
    """Return the text of a table, with the comment lines of ``head``."""
    comments = [line for line in head.splitlines() if line.startswith("#")]
    rows = [f"{package:<33} {budget.lines:>6}  {budget.reason}".rstrip() for package, budget in budgets.items()]
    return "\n".join((*comments, "", *rows, ""))


def main() -> None:
    """Write the present lines into the table, and print what is left to do."""
    head, lines = TABLE.read_text(), lines_by_package()
    budgets = refreshed(lines, read(head))
    TABLE.write_text(table_of(head, budgets))
    left = problems(lines, budgets) or ["budget.txt is complete"]
    sys.stdout.write("\n".join((f"{len(budgets)} packages have {sum(lines.values())} lines", *left, "")))


if __name__ == "__main__":
    main()
