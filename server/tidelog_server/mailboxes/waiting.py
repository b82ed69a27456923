"""Fetches that wait for messages."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.fold.calls import Call
from tidelog_server.mailboxes.operations import Fetched


@dataclass(slots=True, eq=False)
class FetchCall(Call[Fetched]):
    """A fetch that waits for messages.

    Attributes:
        wait_s: Seconds to wait for the first message.
        timer: Ends the wait.
        tenant: Tenant of the caller, to which the wait counts.
    """

    can_wait: ClassVar[bool] = True

    wait_s: float = 0.0
    timer: asyncio.TimerHandle | None = None
    tenant: Tenant = NO_TENANT


class WaitingFetches:
    """Fetches that wait for messages, in the order in which they came.

    Each leaves when it is served, its caller leaves, or its time is over. ``bounds`` bounds their number.
    """

    def __init__(self) -> None:
        self._calls: OrderedDict[FetchCall, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, call: FetchCall) -> bool:
        return call in self._calls

    def add(self, call: FetchCall) -> None:
        """Let a fetch wait; it is answered without messages after ``wait_s``."""
        self._calls[call] = None
        call.timer = asyncio.get_running_loop().call_later(call.wait_s, call.succeed, Fetched((), 0))
        call.done.add_done_callback(lambda _: self.remove(call))

    def remove(self, call: FetchCall) -> None:
        """Let a fetch wait no longer; it receives no answer from here. Idempotent."""
        self._calls.pop(call, None)
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None

    def first(self) -> FetchCall | None:
        """Return the oldest fetch; None without one."""
        return next(iter(self._calls), None)
