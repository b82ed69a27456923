"""The options of ``df.write.format("tidelog")`` and ``df.writeStream``. Names are those below in any case.

============================  ==========================================================================
``endpoint``                  ``host:port`` of the server; default: ``TIDELOG_ENDPOINT``, else 127.0.0.1:7420
``channel``                   where all rows go; ``save("orders")`` and ``start("orders")`` mean the same. Without it
                              the rows have a column ``channel``
``delivery``                  ``exactlyOnce`` (default): all rows of a batch are in the log together, once;
                              ``atLeastOnce``: rows are in the log as they come, those of a repeated task again
``txnAppId``                  names who writes, 1 to 128 bytes; a stream needs one of its own for exactly once
``txnVersion``                the number of this batch among those of ``txnAppId``, growing; a stream's batches have one
``txnTimeout``                seconds that the rows of a finished task wait for the rest of the batch: 1 to 86400,
                              default 3600
``txnIsNew``                  ``true``: ``txnAppId`` has written nothing yet, which you know; needed only where the
                              server says that it may have forgotten the application
``durability``                ``sync``: acknowledged when on disk, ``os``: when the operating system has it; default:
                              the server's
``token``, ``tokenFile``,     as for reading
``tlsCa``, ``tlsCert``,
``tlsKey``
============================  ==========================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from tidelog import Durability
from tidelog.spark.connection import Connection, connection_of
from tidelog.spark.option_error import OptionError
from tidelog.spark.option_values import MAX_COUNT, flag_of, known_options, number_of

_Choice = TypeVar("_Choice")
Delivery = Literal["exactlyOnce", "atLeastOnce"]

# The last two are Spark's own, which it hands over with ours.
NAMES: Final = (
    "endpoint", "channel", "path", "delivery", "txnAppId", "txnVersion", "txnTimeout", "txnIsNew", "durability",
    "token", "tokenFile", "tlsCa", "tlsCert", "tlsKey", "checkpointLocation", "queryName",
)  # fmt: skip
_DELIVERIES: Final[dict[str, Delivery]] = {"exactlyonce": "exactlyOnce", "atleastonce": "atLeastOnce"}
_DURABILITIES: Final[dict[str, Durability]] = {"sync": "sync", "os": "os"}
_MAX_APP_ID_BYTES: Final = 128
_DEFAULT_TIMEOUT_S: Final = 3_600
_MAX_TIMEOUT_S: Final = 86_400


@dataclass(frozen=True)
class WriteOptions:
    """The options, checked.

    Attributes:
        connection: How to reach the server.
        channel: Where all rows go; empty for what their column says.
        delivery: How often each row is in the log.
        app_id: Who writes; empty for nobody in particular.
        app_version: The number of this batch; None if it is not given.
        timeout_s: How long what a task has written waits for the rest of the batch.
        durability: When writes are acknowledged; None for the server's default.
        is_new: Whether ``app_id`` has written nothing yet, so that a server that may have forgotten it takes it as new.
    """

    connection: Connection
    channel: str
    delivery: Delivery
    app_id: str
    app_version: int | None
    timeout_s: int
    durability: Durability | None
    is_new: bool = False


def parse_write_options(raw: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Return the options that Spark hands over for a write.

    Raises:
        OptionError: See there.
    """
    options = known_options(raw, NAMES)
    if "path" in options:
        if "channel" in options:
            verb = "start" if is_stream else "save"
            raise OptionError(f"give the channel either as option 'channel' or as {verb}(...), not both")
        options["channel"] = options.pop("path")
    delivery = _choice(options, "delivery", _DELIVERIES) or "exactlyOnce"
    app_id = options.get("txnAppId", "")
    if "txnAppId" in options and not 1 <= len(app_id.encode()) <= _MAX_APP_ID_BYTES:
        raise OptionError(f"the option 'txnAppId' has {len(app_id.encode())} bytes, expected 1 to {_MAX_APP_ID_BYTES}")
    version = number_of(options, "txnVersion", 0, 0, MAX_COUNT) if "txnVersion" in options else None
    _check_identity(delivery, app_id, version, is_stream=is_stream)
    connection = connection_of(options)
    if len(connection.endpoints) > 1 and not options.get("channel"):
        raise OptionError(
            f"the endpoint is {connection.endpoint!r}, and each row says its channel: a batch goes to one node of a "
            "cluster, so name the one that has the channels; several may be named when all rows go to one channel"
        )
    return WriteOptions(
        connection=connection,
        channel=options.get("channel", ""),
        delivery=delivery,
        app_id=app_id,
        app_version=version,
        timeout_s=number_of(options, "txnTimeout", _DEFAULT_TIMEOUT_S, 1, _MAX_TIMEOUT_S),
        durability=_choice(options, "durability", _DURABILITIES),
        is_new=flag_of(options, "txnIsNew", default=False),
    )


def _check_identity(delivery: Delivery, app_id: str, version: int | None, *, is_stream: bool) -> None:
    """Check that a repetition of the write would be known as one, where that is wanted."""
    if delivery == "atLeastOnce":
        if app_id or version is not None:
            raise OptionError(
                "'txnAppId' and 'txnVersion' are for exactly once: leave them out, or the option delivery=atLeastOnce"
            )
    elif is_stream:
        if version is not None:
            raise OptionError("a stream numbers its batches itself: leave out the option 'txnVersion'")
        if not app_id:
            raise OptionError(
                "a stream that writes exactly once needs the option 'txnAppId': any name that no other query uses and "
                "that stays the same with its checkpoint. With delivery=atLeastOnce it needs none"
            )
    elif bool(app_id) != (version is not None):
        given, missing = ("txnAppId", "txnVersion") if app_id else ("txnVersion", "txnAppId")
        raise OptionError(f"the option '{given}' means nothing without '{missing}': give both, or neither")


def _choice(options: Mapping[str, str], name: str, choices: Mapping[str, _Choice]) -> _Choice | None:
    text = options.get(name)
    if text is None:
        return None
    chosen = choices.get(text.lower())
    if chosen is None:
        raise OptionError(f"the option '{name}' is {text!r}: choose from {', '.join(map(str, choices.values()))}")
    return chosen
