"""Goal: a page has the source of its figures, and marks those that are approximate.

Method: reports made by hand, and the text of their pages.
"""

from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.pipelines import StatsReport, VchannelReport, VerifyReport, stats_page, verify_page
from tidelog.spark.pipelines.digest import Digests
from tidelog.spark.pipelines.html import axis_values, lines

TICK = 1_700_000_000_000 << 18
CHANNEL = {"channel": "orders", "messages": 1_234_567, "distinct_keys": 7, "messages_per_second": None}


def test_a_page_says_what_was_read_from_where_and_when() -> None:
    options = {"endpoint": "log:7420", "channels": "orders,payments"}
    page = stats_page(StatsReport(TICK, 1, [CHANNEL], [], [], [], []), options)

    assert "<title>Statistics of orders, payments</title>" in page
    for name, text in (
        ("server", "log:7420"),
        ("as of tick", f"{TICK} (2023-11-14T22:13:20.000Z)"),
        ("tidelog", metadata.version("tidelog")),
    ):
        assert f"<tr><th>{name}</th><td>{text}</td></tr>" in page
    assert "<tr><th>made</th><td>20" in page


def test_an_audit_says_how_far_it_went() -> None:
    totals = VchannelReport("orders/0", 1, 1, TICK - 1, TICK, "0" * 32, "0" * 32)
    report = VerifyReport((), (), (totals,), 0, 0, 0, Digests())
    page = verify_page(report, {"channelPattern": "*", "archive": "/mnt/archive", "archiveOnly": "true"})

    assert "<h1>Audit of *</h1>" in page
    assert f"<th>last tick read</th><td>{TICK} (2023-11-14T22:13:20.000Z)</td>" in page
    assert "<th>archive</th><td>/mnt/archive</td>" in page
    assert "<th>server</th>" not in page


def test_what_is_not_exact_says_so() -> None:
    page = stats_page(StatsReport(TICK, 1, [CHANNEL], [], [], [], []))

    assert '<th class="number">distinct keys (approximate)</th>' in page
    assert "1,234,567" in page
    assert "None" not in page.replace("<p>None.</p>", "")


def test_the_ends_of_a_line_are_marked() -> None:
    text = lines({"orders": [("a", 1.0), ("b", 2.0), ("c", 3.0)]})

    assert text.count('r="3.5" fill="none"') == 2
    assert text.count('r="2"') == 1


@given(st.floats(1e-6, 1e15))
def test_an_axis_has_a_few_round_values(greatest: float) -> None:
    values = axis_values(greatest)

    assert 3 <= len(values) <= 6
    assert values[0] == 0
    assert values[-1] <= greatest * (1 + 1e-9)
    assert values[1] * len(values) >= greatest * (1 - 1e-9)
    assert f"{values[1]:e}"[0] in "125"


@pytest.mark.parametrize(("greatest", "values"), [(1.0, [0, 0.2, 0.4, 0.6, 0.8, 1]), (1_234, [0, 500, 1_000])])
def test_values_of_an_axis(greatest: float, values: list[float]) -> None:
    assert axis_values(greatest) == pytest.approx(values)
