"""The ``tidelog`` command: run, administer, benchmark and diagnose a server."""

from tidelog_cli.entry import main

__all__ = ["main"]
