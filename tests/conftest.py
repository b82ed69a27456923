"""What every test gets: hypothesis profiles, one worker for Spark, an etcd, and a reason where Java or etcd is missing.

Profile ``dev`` searches anew in each run; ``ci`` (chosen by the variable CI) draws the same examples each
time, so a red build can be repeated; ``TIDELOG_HYPOTHESIS=nightly`` searches long.
"""

import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tidelog_testing.etcd import EtcdProcess

# Why no deadline: the two cores are shared by server, client and Spark, so one example's time means nothing.
settings.register_profile("dev", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True)
settings.register_profile(
    "nightly",
    parent=settings.get_profile("dev"),
    max_examples=2_000,
    suppress_health_check=[HealthCheck.too_slow],
)
# For every JVM that tests start. Each lives for a minute, and the second compiler costs more of it than it saves: a
# quarter of the processor time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A script starts jobs in the background with SIGINT ignored, and children inherit that: in the tests of Ctrl-C
# they would not end.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.load_profile(os.environ.get("TIDELOG_HYPOTHESIS", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """Give an etcd that all tests of a worker share: each uses a prefix of its own, and none stops it."""
    with EtcdProcess(tmp_path_factory.mktemp("etcd") / "data") as running:
        yield running


@pytest.fixture(autouse=True)
def _logging_of_the_process() -> Iterator[None]:
    """Restore how the process logs: a server in it sets its own level, which hides events from later tests."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Divide tests among workers one by one, but those that share a Spark session as one."""
    return _Scheduling(config, log)


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # It has no types.
    """Gives all of one scope to the same worker, the greatest scope first.

    The mark ``xdist_group`` does not do so with pytest 9.2 (https://github.com/pytest-dev/pytest-xdist/issues/1386):
    each worker started a Spark of its own.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith("tests/integration/spark/") else nodeid


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of Spark with the reason where Java is missing."""
    of_spark = [item for item in items if item.get_closest_marker("spark")]
    if of_spark and (why_not := _why_spark_cannot_run()) is not None:
        for item in of_spark:
            item.add_marker(pytest.mark.skip(reason=f"nothing of Spark was tested: {why_not}"))


def _why_spark_cannot_run() -> str | None:
    # Why here: it imports PySpark, which takes a second that other tests need not wait for.
    from tidelog.spark import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        return str(error)
    return None
