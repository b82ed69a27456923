"""A report states the share of CPU time that was stolen during the run."""

import pytest

from tidelog_server.commands.bench import stolen_time
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.bench.stolen_time import StolenTime, share_of


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        pytest.param((1.0, 100.0), (1.0, 110.0), 0.0, id="nothing stolen"),
        pytest.param((1.0, 100.0), (2.0, 110.0), 0.1, id="a tenth"),
        pytest.param((1.0, 100.0), (11.0, 110.0), 1.0, id="all"),
        pytest.param((1.0, 100.0), (1.0, 100.0), 0.0, id="no time between"),
    ],
)
def test_the_share_is_that_of_the_time_between(
    before: tuple[float, float], after: tuple[float, float], share: float
) -> None:
    assert share_of(before, after) == pytest.approx(share)


def test_a_report_gains_one_figure_and_keeps_the_others() -> None:
    noted = StolenTime().noted(Report("latency", {}, details={"echo_p50_us": 5.0}))

    assert noted.details["echo_p50_us"] == 5.0
    assert 0 <= noted.details["stolen_cpu_share"] <= 1


def test_where_the_system_does_not_tell_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stolen_time, "_cpu_seconds", lambda: None)
    report = Report("latency", {})

    assert StolenTime().noted(report) is report
