"""The figures of a log in an engine, in the store and in the metrics of its server."""

from contextlib import closing
from pathlib import Path
from typing import Any

from tidelog_server.core.limits import Limits
from tidelog_server.log.node import LogNode
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.storage.log_store import LogFigures
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.parts.engine_stores import SilentEngine, create_log, open_in, open_on
from tidelog_testing.parts.entries import new_entry
from tidelog_testing.parts.folder_engine import FolderEngine


def figures_of(store: Any) -> LogFigures:
    figures = store.log_figures()
    assert isinstance(figures, LogFigures)
    return figures


def test_what_waits_for_the_engine_is_counted_until_it_is_confirmed(tmp_path: Path) -> None:
    create_log(FolderEngine(tmp_path / "log"))
    engine = SilentEngine(tmp_path / "log")
    confirmed_s: list[float] = []
    with closing(open_on(engine, tmp_path / "view")) as store:
        store.report_confirmations(confirmed_s.append)
        store.create_vchannels([1])
        before = figures_of(store)
        assert (before.term, before.records, before.unconfirmed_bytes, len(confirmed_s)) == (1, 3, 0, 1)
        store.write([new_entry(1, 10, size_bytes=5_000)])
        mark = store.write([new_entry(1, 20, size_bytes=5_000)])
        waiting = figures_of(store)
        assert waiting.unconfirmed_bytes == waiting.appended_bytes - before.appended_bytes
        assert 10_000 < waiting.unconfirmed_bytes < 11_000
        assert waiting.records == 3
        store.sync(mark)
        after = figures_of(store)
        assert (after.unconfirmed_bytes, after.records, len(confirmed_s)) == (0, 5, 3)
        assert all(0 <= each < 60 for each in confirmed_s)


def test_records_of_others_and_views_made_again_are_counted(tmp_path: Path) -> None:
    open_in(tmp_path).close()
    engine = FolderEngine(tmp_path / "log")
    engine.send(b"foreign", lambda _: None)
    engine.poll(0)
    late = sorted(path for path in (tmp_path / "log").iterdir() if path.name.isdecimal())[1].read_bytes()
    engine.send(late, lambda _: None)
    engine.poll(0)
    (tmp_path / "view" / "FORMAT").write_text("tidelog view format 9\ntest-log\n")
    with closing(open_in(tmp_path)) as store:
        figures = figures_of(store)
    assert (figures.term, figures.foreign, figures.fenced, figures.views_rebuilt) == (2, 1, 1, 1)
    with closing(open_in(tmp_path)) as store:
        # What was applied before is not read again.
        assert figures_of(store)[4:] == (0, 0, 0)


async def test_the_metrics_have_the_figures(tmp_path: Path) -> None:
    metrics = Metrics()
    with closing(open_in(tmp_path)) as store:
        node = LogNode(store, Limits(), SystemClock(), metrics, on_failure=lambda _: None)
        store.create_vchannels([1])
        store.sync(store.write([new_entry(1, 10)]))
        for _ in range(2):
            node._refresh_log_metrics(figures_of(store))
        await node.committer.close()
        figures = figures_of(store)

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"tidelog_log_{name}")

    assert value("confirm_seconds_count") == 2
    assert (value("term"), value("records"), value("unconfirmed_bytes")) == (1, 4, 0)
    assert value("appended_bytes_total") == figures.appended_bytes > 0
    assert (value("foreign_records_total"), value("fenced_records_total")) == (0, 0)


def test_a_store_without_an_engine_has_none(tmp_path: Path) -> None:
    with closing(open_rocksdb_log_store(tmp_path)) as store:
        assert store.log_figures() is None
