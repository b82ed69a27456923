"""The pool of readers."""

from tidelog_server.recordlog.engine import EngineUnavailableError
from tidelog_server.recordlog.readers import ReaderPool


class Reader:
    """A reader that notes its rests, of which each fails."""

    next = None
    is_unused = True

    def __init__(self) -> None:
        self.rests = 0

    def rest(self) -> None:
        self.rests += 1
        raise EngineUnavailableError("the broker is frozen")

    def close(self) -> None:
        """Do nothing."""


def test_all_readers_rest_though_the_engine_does_not_answer() -> None:
    """The snapshots of a node call it each second: a failure would stop the server."""
    readers: ReaderPool[Reader] = ReaderPool(Reader, places=2)
    with readers.lent(None) as one, readers.lent(None) as other:
        pass

    readers.rest()

    assert (one.rests, other.rests) == (1, 1)
    with readers.lent(None) as again:
        assert again in {one, other}
