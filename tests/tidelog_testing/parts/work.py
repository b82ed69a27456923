"""The work of a coroutine: Python function calls in each of its steps, which no busy machine changes."""

import sys
from collections.abc import Awaitable, Generator
from contextlib import closing
from typing import Any, Generic, TypeVar

from tidelog_server.channels.contents import Content
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.security.access import Access
from tidelog_server.security.authenticator import Principal, Shown
from tidelog_server.security.grants import Verb, parse_grants
from tidelog_server.security.quotas import Quotas, QuotaTable

_Result = TypeVar("_Result")


class Counted(Generic[_Result]):
    """Awaits something, and counts.

    Attributes:
        steps: Function calls of each step: what runs between two times that the event loop gets control.
    """

    def __init__(self, inner: Awaitable[_Result]) -> None:
        self._inner = inner
        self.steps: list[int] = []

    @property
    def calls(self) -> int:
        """Function calls of all steps."""
        return sum(self.steps)

    @property
    def longest(self) -> int:
        """Function calls of the longest step."""
        return max(self.steps)

    def __await__(self) -> Generator[Any, Any, _Result]:
        generator = self._inner.__await__()
        # If the task is cancelled, the call ends here: CPython 3.11 crashes if the garbage collector ends it.
        with closing(generator):
            while True:
                self.steps.append(0)
                sys.setprofile(self._count)
                try:
                    awaited = next(generator)
                except StopIteration as end:
                    found: _Result = end.value
                    return found
                finally:
                    sys.setprofile(None)
                yield awaited

    def _count(self, _frame: object, event: str, _argument: object) -> None:
        if event == "call":
            self.steps[-1] += 1


def denied(access: Access, verb: Verb, name: str) -> None:
    """Note no denials."""


def no_content(_: str) -> Content | None:
    """Return that a channel holds messages of no journal and no mailbox."""
    return None


def access_of(*grants: str, name: str = "token:one", quotas: QuotaTable | None = None) -> Access:
    """Return the access of a principal with these grants."""
    table = quotas or QuotaTable(Quotas(), SystemClock(), Metrics())
    principal = Principal(name, parse_grants(grants))
    shown = Shown((), b"", "127.0.0.1", is_local=True, is_encrypted=False)
    return Access("method", shown, principal, table.of(name), on_denied=denied, content_of=no_content)


class CallContext:
    """The part of a call's context that lists and watches use.

    Attributes:
        written: What the call has written.
    """

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def peer(self) -> str:
        """Return where the call comes from."""
        return "ipv4:127.0.0.1:1"

    async def write(self, response: bytes) -> None:
        """Take a response."""
        self.written.append(response)
