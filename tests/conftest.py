"""Shared by all tests: hypothesis profiles, one worker for Spark, an etcd, and a reason if Java or etcd is missing.

Profile ``dev`` searches new examples in each run; ``ci`` (chosen by the variable CI) draws the same examples each
time, so a failed build can be repeated; ``TIDELOG_HYPOTHESIS=nightly`` searches for long.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.pulsar import PulsarProcess
from tidelog_testing.servers.tested_store import use_engine_store
from tidelog_testing.suites import engine_of, is_extended, runs_on_engine

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

# Some images set it. Without bytecode each worker rewrites all modules of the tests, 17 s of processor time, and each
# process that a test starts compiles all that it imports, 0.4 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test, nor a process that it starts, uses a server that the user of this machine has selected.
# In a folder in which root cannot create one either.
os.environ["TIDELOG_CONFIG_HOME"] = "/proc/none"

# Beside the output of what is tested.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
_LOGGING_AT_START = structlog.get_config()

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


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcesses]:
    """Provide a Kafka of one node that all tests share: each uses its own topics, and none stops it."""
    with KafkaProcesses(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(autouse=True)
def _logging_of_the_process() -> None:
    """Restore the logging of the process: a server in it sets its own level, which hides events from later tests.

    To what it was at the start, because a server of a module has set its level before the first test.
    """
    structlog.configure(**_LOGGING_AT_START)


@pytest.fixture(autouse=True)
def _tracing_ends_with_the_test() -> Iterator[None]:
    """Fail a test that leaves tracing enabled: the operations of later tests of the process would be measured, too."""
    yield
    tracing = sys.modules.get("tidelog.transport.tracing")
    assert tracing is None or tracing.hooks is None, "the test enabled tracing: call tidelog.tracing.disable()"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the second run."""
    parser.addoption(
        "--log-store", choices=("of-settings", "engine"), default="of-settings",
        help="engine: run the tests of suites.ON_ENGINE, with servers on the engine store in place of that of their "
        "settings; each start has a new view",
    )  # fmt: skip


def _is_on_engine(config: pytest.Config) -> bool:
    return bool(config.getoption("--log-store") == "engine")


@pytest.fixture(scope="session", autouse=True)
def _log_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give servers the store that the run is for."""
    if _is_on_engine(request.config):
        use_engine_store(tmp_path_factory.mktemp("logs"))


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
    "tests/integration/cluster/test_finding_clients.py": "finding-clients",
    "tests/integration/spark/": "spark",
    "tests/tidy/": "tidy",
}


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # It has no types.
    """Assigns all tests of one scope to the same worker, the largest scope first: they share a Spark, a broker, data
    folders, or parsed files.

    The mark ``xdist_group`` does not do that with pytest 9.2 (https://github.com/pytest-dev/pytest-xdist/issues/1386):
    each worker started its own Spark.
    """

    def _split_scope(self, nodeid: str) -> str:
        if (engine := engine_of(nodeid)) is not None:
            return engine
        return next((name for folder, name in _SCOPES.items() if nodeid.startswith(folder)), nodeid)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even load the modules that do not run on the engine store, unless they are named."""
    is_left_out = _is_on_engine(config) and collection_path.is_file() and _is_elsewhere(config, collection_path)
    return is_left_out or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that do not run on the engine store; skip those of Spark, with the reason, if Java is missing."""
    if _is_on_engine(config):
        _leave_out(config, items)
    of_spark = [item for item in items if item.get_closest_marker("spark")]
    if of_spark and (why_not := _why_spark_cannot_run()) is not None:
        for item in of_spark:
            item.add_marker(pytest.mark.skip(reason=f"nothing of Spark was tested: {why_not}"))


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if item.get_closest_marker("not_on_engine") or _is_elsewhere(config, item.path)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _is_elsewhere(config: pytest.Config, module: Path) -> bool:
    return not runs_on_engine(module.relative_to(config.rootpath))


def _why_spark_cannot_run() -> str | None:
    # Imported here because it loads PySpark, which takes a second that other tests need not wait for.
    from tidelog.spark import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        return str(error)
    return None
