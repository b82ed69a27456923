"""The options of ``df.write.format("tidelog")`` and ``df.writeStream``. Names are case-insensitive.

============================  ==========================================================================
``endpoint``, ``context``     the server, as for reading
``channel``                   channel for all rows; same as ``save("orders")`` and ``start("orders")``. If not set, the
                              rows need a column ``channel``
``delivery``                  ``exactlyOnce`` (default): all rows of a batch become visible together, once;
                              ``atLeastOnce``: rows are appended as they come, and a retried task appends its rows again
``txnAppId``                  id of the writing application, 1 to 128 bytes; an exactly-once stream needs its own
``txnVersion``                number of this batch, increasing per ``txnAppId``; a stream numbers its batches itself
``txnTimeout``                seconds that the rows of a finished task wait for the rest of the batch: 1 to 86400,
                              default 3600
``txnIsNew``                  ``true``: asserts that ``txnAppId`` has never committed; needed only if the server reports
                              that it may have evicted the application
``durability``                ``sync``: acknowledge when on disk, ``os``: when in the operating system's cache; default:
                              the server's
``token``, ``tokenFile``,     as for reading
``tlsCa``, ``tlsCert``,
``tlsKey``
============================  ==========================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidelog import Durability
from tidelog.spark.connection import Connection, connection_of
from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import MAX_COUNT, choice_of, flag_of, known_options, number_of

Delivery = Literal["exactlyOnce", "atLeastOnce"]

# The last two are Spark's own, which it hands over as well.
NAMES: Final = (
    "endpoint", "context", "channel", "path", "delivery", "txnAppId", "txnVersion", "txnTimeout", "txnIsNew",
    "durability", "token", "tokenFile", "tlsCa", "tlsCert", "tlsKey", "checkpointLocation", "queryName",
)  # fmt: skip
_DELIVERIES: Final[dict[str, Delivery]] = {"exactlyonce": "exactlyOnce", "atleastonce": "atLeastOnce"}
_DURABILITIES: Final[dict[str, Durability]] = {"sync": "sync", "os": "os"}
_MAX_APP_ID_BYTES: Final = 128
_DEFAULT_TIMEOUT_S: Final = 3_600
_MAX_TIMEOUT_S: Final = 86_400


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write, checked; the table above explains them.

    Attributes:
        channel: Channel for all rows; empty if the column ``channel`` names it.
        app_id, app_version, timeout_s, is_new: The options ``txn...``; empty and None if not set.
        durability: When writes are acknowledged; None for the server's default.
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
    """Parse the options that Spark hands over for a write.

    Raises:
        OptionError: An option is unknown or invalid, or two contradict each other.
    """
    options = known_options(raw, NAMES)
    if "path" in options:
        if "channel" in options:
            verb = "start" if is_stream else "save"
            raise OptionError(f"the channel is set both by the option 'channel' and by {verb}(...): use one of them")
        options["channel"] = options.pop("path")
    delivery = choice_of(options, "delivery", _DELIVERIES, "exactlyOnce", "choose from exactlyOnce, atLeastOnce")
    app_id = options.get("txnAppId", "")
    if "txnAppId" in options and not 1 <= len(app_id.encode()) <= _MAX_APP_ID_BYTES:
        raise OptionError(f"the option 'txnAppId' has {len(app_id.encode())} bytes, expected 1 to {_MAX_APP_ID_BYTES}")
    version = number_of(options, "txnVersion", 0, 0, MAX_COUNT) if "txnVersion" in options else None
    _check_identity(delivery, app_id, version, is_stream=is_stream)
    connection = connection_of(options)
    if len(connection.endpoints) > 1 and not options.get("channel"):
        raise OptionError(
            f"the endpoint is {connection.endpoint!r}, but the column 'channel' names the channels: a batch goes to "
            "one node of a cluster, so set the endpoint to the owner of the channels, or set the option 'channel'"
        )
    return WriteOptions(
        connection=connection,
        channel=options.get("channel", ""),
        delivery=delivery,
        app_id=app_id,
        app_version=version,
        timeout_s=number_of(options, "txnTimeout", _DEFAULT_TIMEOUT_S, 1, _MAX_TIMEOUT_S),
        durability=choice_of(options, "durability", _DURABILITIES, "", "choose from sync, os")
        if "durability" in options
        else None,
        is_new=flag_of(options, "txnIsNew", default=False),
    )


def _check_identity(delivery: Delivery, app_id: str, version: int | None, *, is_stream: bool) -> None:
    """Check that an exactly-once write can be identified when it is retried."""
    if delivery == "atLeastOnce":
        if app_id or version is not None:
            raise OptionError(
                "'txnAppId' and 'txnVersion' require exactly-once delivery: remove them, or delivery=atLeastOnce"
            )
    elif is_stream:
        if version is not None:
            raise OptionError("a stream numbers its batches itself: remove the option 'txnVersion'")
        if not app_id:
            raise OptionError(
                "an exactly-once stream needs the option 'txnAppId': choose a name that no other query uses, and keep "
                "it as long as the checkpoint. Or set delivery=atLeastOnce"
            )
    elif bool(app_id) != (version is not None):
        given, missing = ("txnAppId", "txnVersion") if app_id else ("txnVersion", "txnAppId")
        raise OptionError(f"the option '{given}' requires '{missing}': set both or neither")
