"""Shared by all tests: hypothesis profiles, one worker for Spark, an etcd, and a reason if Java or etcd is missing.

Profile ``dev`` searches new examples in each run; ``ci`` (chosen by the variable CI) draws the same examples each
time, so a failed build can be repeated; ``TIDELOG_HYPOTHESIS=nightly`` searches for long.
"""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.pulsar import PulsarProcess
from tidelog_testing.suites import is_extended, needs_pulsar

# Why no deadline: the two cores are shared by server, client and Spark, so one example's time means nothing.
settings.register_profile("dev", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True)
settings.register_profile(
    "nightly",
    parent=settings.get_profile("dev"),
    max_examples=2_000,
    suppress_health_check=[HealthCheck.too_slow],
)
# For every JVM that tests start. Each lives for about a minute, in which the second compiler costs more than it saves:
# a quarter of the processor time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A script starts background jobs with SIGINT ignored, and children inherit that: the tests of Ctrl-C would not end.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.load_profile(os.environ.get("TIDELOG_HYPOTHESIS", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """Provide an etcd that all tests of a worker share: each uses its own prefix, and none stops it."""
    with EtcdProcess(tmp_path_factory.mktemp("etcd") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarProcess]:
    """Provide a Pulsar that all tests share: each module uses its own namespace, and none stops it."""
    with PulsarProcess(tmp_path_factory.mktemp("pulsar")) as running:
        yield running


@pytest.fixture(autouse=True)
def _logging_of_the_process() -> Iterator[None]:
    """Restore the logging of the process: a server in it sets its own level, which hides events from later tests."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the extended suite, before ``-m`` selects."""
    if is_extended(item.nodeid):
        item.add_marker(pytest.mark.extended)


def pytest_collection_finish() -> None:
    """Leave the modules and the collected tests out of garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Distribute tests to workers one by one, but those of a scope together."""
    return _Scheduling(config, log)


_SCOPES = {
    "tests/integration/backup/test_whole_state.py": "whole-state",
    "tests/integration/spark/": "spark",
    "tests/tidy/": "tidy",
}


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # It has no types.
    """Assigns all tests of one scope to the same worker, the largest scope first: they share a Spark, a Pulsar, data
    folders, or parsed files.

    The mark ``xdist_group`` does not do that with pytest 9.2 (https://github.com/pytest-dev/pytest-xdist/issues/1386):
    each worker started its own Spark.
    """

    def _split_scope(self, nodeid: str) -> str:
        if needs_pulsar(nodeid):
            return "pulsar"
        return next((name for folder, name in _SCOPES.items() if nodeid.startswith(folder)), nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the Spark tests, with the reason, if Java is missing."""
    of_spark = [item for item in items if item.get_closest_marker("spark")]
    if of_spark and (why_not := _why_spark_cannot_run()) is not None:
        for item in of_spark:
            item.add_marker(pytest.mark.skip(reason=f"nothing of Spark was tested: {why_not}"))


def _why_spark_cannot_run() -> str | None:
    # Imported here because it loads PySpark, which takes a second that other tests need not wait for.
    from tidelog.spark import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        return str(error)
    return None
