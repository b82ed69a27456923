"""What every test gets: hypothesis profiles, one worker for Spark, an etcd, and a reason where Java or etcd is missing.

Profile ``dev`` searches anew in each run; ``ci`` (chosen by the variable CI) draws the same examples each
time, so a red build can be repeated; ``TIDELOG_HYPOTHESIS=nightly`` searches long.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

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
settings.load_profile(os.environ.get("TIDELOG_HYPOTHESIS", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """Give an etcd that all tests of a worker share: each uses a prefix of its own, and none stops it."""
    with EtcdProcess(tmp_path_factory.mktemp("etcd") / "data") as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all Spark tests on one worker, and skip them with the reason where Java is missing."""
    of_spark = [item for item in items if item.get_closest_marker("spark")]
    if not of_spark:
        return
    why_not = _why_spark_cannot_run()
    for item in of_spark:
        item.add_marker(pytest.mark.xdist_group("spark"))
        if why_not is not None:
            item.add_marker(pytest.mark.skip(reason=f"nothing of Spark was tested: {why_not}"))


def _why_spark_cannot_run() -> str | None:
    # Why here: it imports PySpark, which takes a second that other tests need not wait for.
    from tidelog.spark import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        return str(error)
    return None
