"""A real Tidelog server in the test process, and pytest fixtures.

The server runs on a thread and an event loop of its own, on free ports of loopback, with its log in memory or in a
folder. It is found through the entry point group ``tidelog.test_server``, so tests need ``tidelog[server]``.

With pytest the fixtures are there without an import: ``tidelog_server`` (a TestServer), ``tidelog_client`` and
``tidelog_async_client``, each new for each test::

    def test_orders(tidelog_client):
        tidelog_client.create_channel("orders")
        assert tidelog_client.append("orders", b"one").first_tick
"""

from tidelog.testing._server import TestServer, server, start_server

__all__ = ["TestServer", "server", "start_server"]
