"""The command line ``tidelog``: runs the server, talks to one, measures it, and looks at the machine under it."""

from tidelog_server.cli.entry import main

__all__ = ["main"]
