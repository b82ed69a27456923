"""Dashboard and alert rules use metrics that a server has, and each alert states what to do.

Method: the metric names in every expression of the files are compared with the metrics of a real server. Grafana and
Prometheus are not needed; `make check-deploy` runs promtool's checks and tests of the rules.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.compose import ROOT, read_compose
from tidy.test_documents import anchors

DEPLOY: Final = ROOT / "deploy"
ALERTS: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "tidelog.json").read_text())
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:tidelog|process|grpc_server)_\w+\b", expression))


def expressions() -> Iterator[str]:
    yield from (str(alert["expr"]) for alert in ALERTS)
    yield from (target["expr"] for panel in PANELS for target in panel["targets"])
    yield from (each["expr"] for each in DASHBOARD["annotations"]["list"])
    yield from (each["query"]["query"] for each in DASHBOARD["templating"]["list"])


async def names_of_a_server(folder: Path | None) -> set[str]:
    async with running_server(folder) as server:
        text = (await server._render_metrics()).decode()
    families = dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text))
    histograms = {name for name, kind in families.items() if kind == "histogram"}
    return set(families) | {f"{name}_{end}" for name in histograms for end in ("bucket", "sum", "count")}


async def test_every_metric_that_dashboard_and_alerts_name_is_one_of_the_server(tmp_path: Path) -> None:
    named = {name for expression in expressions() for name in names_in(expression)}
    known = await names_of_a_server(tmp_path / "data")
    assert named <= known


async def test_a_server_that_cannot_make_backups_does_not_export_when_the_last_one_was() -> None:
    assert "tidelog_backup_last_success_timestamp_seconds" not in await names_of_a_server(None)


def test_the_names_in_expressions_are_found() -> None:
    assert names_in('rate(tidelog_a_total{job="tidelog"}[5m]) / process_b') == {"tidelog_a_total", "process_b"}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_an_alert_has_a_severity_and_leads_to_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning"}
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor in anchors(ROOT / page)
    assert anchor == alert["alert"].lower()


def test_every_alert_is_tried_in_the_tests_for_promtool() -> None:
    text = (DEPLOY / "prometheus" / "alerts_test.yml").read_text()
    assert [alert["alert"] for alert in ALERTS if f"name: {alert['alert']} fires" not in text] == []


def test_every_server_that_shows_metrics_is_a_target_of_prometheus_also_while_it_is_stopped() -> None:
    job, _ = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target: group.get("labels", {}) for group in job["static_configs"] for target in group["targets"]}
    servers = {
        name: service
        for name, service in read_compose()["services"].items()
        if service.get("environment", {}).get("TIDELOG_SERVER__HTTP_HOST") == "0.0.0.0"
    }
    # A server that need not exist is labelled with its profile.
    labels = [{"profile": profile} for service in servers.values() for profile in service.get("profiles", [""])]
    expected = dict(zip((f"{name}:7421" for name in servers), labels, strict=True))
    assert targets == {target: label if label["profile"] else {} for target, label in expected.items()}
    assert set(job) == {"job_name", "static_configs"}


def test_panels_do_not_overlap_and_each_asks_something() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert taken.isdisjoint(cells), panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert all(panel["targets"] and panel["title"] for panel in PANELS)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_dashboard_is_provisioned_from_where_it_is_mounted() -> None:
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/tidelog.yml").read_text())["providers"]
    mounts = dict(text.split(":")[1::-1] for text in read_compose()["services"]["grafana"]["volumes"])
    assert mounts[provider["options"]["path"]] == "./grafana/dashboards"
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert {panel["datasource"]["uid"] for panel in PANELS} == {source["uid"]}
