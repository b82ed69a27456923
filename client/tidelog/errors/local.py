"""Errors that the client raises without a reason of the server, so that no reason of the protocol declares them."""

from tidelog.errors.base import TidelogError


class ChannelsPartlyDoneError(TidelogError):
    """A change of more channels than fit into one request failed partway; the ``__cause__`` is the reason.

    What to do: check its cause, then repeat the call for the channels in ``not_done``.

    Attributes:
        done: Names of the channels that were changed, in the requested order.
        not_done: Names of the channels that were not changed: those of the failed request, and all after it, which
            were not tried.
        unknown: Names of the channels whose request has an unknown outcome; ``effect`` is then ``unknown``.
    """

    done: tuple[str, ...] = ()
    not_done: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class DeadlineError(TidelogError, TimeoutError):
    """No response arrived in time.

    What to do: wait longer.
    """


class BufferFullError(TidelogError):
    """The producer's buffer has no room for another message now. The message was not accepted.

    What to do: wait for room with ``await producer.send``.
    """


class ProducerStoppedError(TidelogError):
    """An earlier append of this producer failed; that error is the ``__cause__``. This message was not sent.

    A producer stops rather than leave a gap in its messages.

    What to do: check its cause, then create a new producer.
    """


class FrameTooLargeError(TidelogError):
    """The messages of a scan take more memory as a table than the call permits. The scan is closed.

    What to do: read fewer messages or columns, raise ``max_bytes``, or read the scan in batches.
    """


class ClosedError(TidelogError):
    """The client, producer or scan is closed.

    What to do: correct the program.
    """


class ForkError(TidelogError):
    """This process was forked while its parent had streams open or used gRPC otherwise, so gRPC cannot work here.

    What to do: open the client after the fork, or use the start method "spawn".
    """
