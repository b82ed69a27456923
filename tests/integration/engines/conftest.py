"""The brokers of the engines, each of which all tests share."""

import pytest

from tidelog_testing.servers.brokers import Broker


@pytest.fixture(params=["kafka", "pulsar"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found
