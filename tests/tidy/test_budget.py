"""Each package of the client and the server has a budget of lines, so that the program stays small.

Method: the lines of the hand-written Python files against ``budget.txt``; the rules, on planted packages.
"""

from pathlib import PurePath

import pytest

from tidy.budget import TABLE, Budget, lines_by_package, package_of, problems, read, refreshed, table_of


def test_every_package_keeps_its_budget() -> None:
    assert problems(lines_by_package(), read(TABLE.read_text())) == []


@pytest.mark.parametrize(
    ("lines", "budget"),
    [(1_000, 1_000), (1_020, 1_000), (1_000, 1_050), (10, 30)],
)
def test_a_package_near_its_budget_is_accepted(lines: int, budget: int) -> None:
    assert problems({"client/a": lines}, {"client/a": Budget(budget, "reason")}) == []


@pytest.mark.parametrize(
    ("lines", "budgets", "problem"),
    [
        ({"client/a": 1_021}, {"client/a": Budget(1_000, "reason")},
         "client/a: 1021 lines, budget 1000: remove code, or raise the number in budget.txt and state the reason in "
         "the same line"),
        ({"client/a": 1_000}, {"client/a": Budget(1_051, "reason")},
         "client/a: 1000 lines, budget 1051: lower the number, with `make budget`"),
        ({"client/a": 10}, {"client/a": Budget(31, "reason")},
         "client/a: 10 lines, budget 31: lower the number, with `make budget`"),
        ({"client/a": 1_000}, {"client/a": Budget(1_000, "")},
         "client/a: 1000 lines, budget 1000: state the reason in the same line"),
        ({"client/a": 1_000}, {},
         "client/a: 1000 lines, no budget: add a line to budget.txt with the reason of the package"),
        ({}, {"client/a": Budget(1_000, "reason")},
         "client/a: no such package, budget 1000: remove its line from budget.txt"),
    ],
)  # fmt: skip
def test_what_contradicts_a_budget_is_named_with_what_to_do(
    lines: dict[str, int], budgets: dict[str, Budget], problem: str
) -> None:
    assert problems(lines, budgets) == [problem]


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("client/tidelog/append/queue.py", "client/tidelog/append"),
        ("client/tidelog/gazette/stores/_postgres.py", "client/tidelog/gazette"),
        ("client/tidelog/client.py", "client/tidelog"),
        ("server/tidelog_server/rpc/web/api.py", "server/tidelog_server/rpc"),
        ("client/pyspark_tidelog/__init__.py", "client/pyspark_tidelog"),
        ("client/tidelog/sync/generated/client.py", None),
        ("client/tidelog/gazette/stores/_generated_postgres.py", None),
        ("client/examples/flights_on_spark.py", None),
        ("tests/tidy/budget.py", None),
        ("tools/make_sync.py", None),
    ],
)
def test_a_file_counts_for_its_package(path: str, package: str | None) -> None:
    assert package_of(PurePath(path)) == package


def test_a_refresh_takes_the_present_lines_and_asks_for_the_reason_of_what_grew() -> None:
    budgets = read(
        "# Comment.\n\na/grown 100 its reason\na/less 100 its reason\na/near 100 its reason\na/gone 7 its reason\n"
    )
    now = refreshed({"a/grown": 103, "a/less": 60, "a/near": 102, "a/new": 5}, budgets)
    assert now == {
        "a/grown": Budget(103, ""),
        "a/less": Budget(60, "its reason"),
        "a/near": Budget(100, "its reason"),
        "a/new": Budget(5, ""),
    }
    assert read(table_of("# Comment.\n", now)) == now
