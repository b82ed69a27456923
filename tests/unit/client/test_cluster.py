"""Errors of the cluster's client. Method: replace the calls of the nodes."""

import pytest

from tidelog import AsyncCluster, UnavailableError


async def test_a_failed_destroy_raises_its_own_error_if_the_client_was_closed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = AsyncCluster("127.0.0.1:1")

    async def fail(*_: object, **__: object) -> list[str]:
        await cluster.aclose()
        raise UnavailableError("the node has gone")

    monkeypatch.setattr(cluster, "_at_owners", fail)

    with pytest.raises(UnavailableError, match="the node has gone"):
        await cluster.destroy_channels(["a"])
