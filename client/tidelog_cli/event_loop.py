"""The event loop of all processes of the command line, including the server: uvloop, which is libuv behind asyncio.

The client package ``tidelog`` does not use it: a library may not choose the loop of its process.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` to completion as ``asyncio.run`` does, on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
