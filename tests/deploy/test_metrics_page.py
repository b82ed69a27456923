"""docs/operate/metrics.md lists every metric, with its type, labels and meaning, and nothing else.

Method: the page, and the page that deploy/checks/metrics_table.py would generate from the server's own metrics.
"""

import importlib.util
from types import ModuleType

from tidelog_testing.servers.compose import ROOT


def metrics_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metrics_table", ROOT / "deploy" / "checks" / "metrics_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_metrics_is_what_the_server_has() -> None:
    module = metrics_table()
    page = module.PAGE.read_text()
    rows = {line + "\n" for line in page.splitlines() if line.startswith("| `")}
    expected = set(module.table().removeprefix(module.HEAD).splitlines(keepends=True))
    assert (rows - expected, expected - rows) == (set(), set()), "run: python deploy/checks/metrics_table.py"
    assert module.written(page) == page


def test_every_metric_of_ours_says_so_in_its_name() -> None:
    names = [row.split("`")[1] for row in metrics_table().rows()]
    assert [name for name in names if not name.startswith(("tidelog_", "process_", "grpc_server_"))] == []
