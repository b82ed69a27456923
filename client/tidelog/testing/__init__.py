"""A real Tidelog server in the test process, and pytest fixtures.

The server has its own thread and event loop, listens on free loopback ports, and stores its log in memory or in a
folder. It is loaded through the entry point group ``tidelog.test_server``, so tests need ``tidelog[server]``.

pytest finds these fixtures without an import; each test gets new ones: ``tidelog_server`` (a TestServer),
``tidelog_client`` and ``tidelog_async_client``::

    def test_orders(tidelog_client):
        tidelog_client.create_channel("orders")
        assert tidelog_client.append("orders", b"one").first_tick
"""

from tidelog.testing._server import TestServer, server, start_server

__all__ = ["TestServer", "server", "start_server"]
