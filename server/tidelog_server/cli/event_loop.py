"""The event loop that the command line's processes run on, the server among them.

uvloop is libuv behind asyncio's interface. A library may not choose the loop of its process, so ``tidelog`` the client
package does not.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` to its end as ``asyncio.run`` does, on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
