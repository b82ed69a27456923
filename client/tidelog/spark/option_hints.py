"""Replacements for options of other sources that users try first: Spark's Kafka connector, Delta and files."""

from typing import Final

_BOUNDS: Final = "bound a batch by 'startingTick' and 'endingTick', or by 'startingTimestamp' and 'endingTimestamp'"

# Keys are in lower case, as Spark passes them. docs/guides/spark/reading.md lists the options of Kafka's connector.
HINTS: Final = {
    "kafka.bootstrap.servers": "use 'endpoint'",
    "subscribe": "use 'channels', or 'channel' for one",
    "subscribepattern": "use 'channelPattern': a name and '.*', not a regular expression",
    "assign": "use 'vchannels': orders/0,orders/2",
    "topic": "use 'channel'",
    "endingoffsets": f"{_BOUNDS}; a stream has no end",
    "startingoffsetsbytimestamp": "use 'startingTimestamp'",
    "endingoffsetsbytimestamp": "use 'endingTimestamp'",
    "startingoffsetsbytimestampstrategy": "remove it: a read starts at the first message at or after the time",
    "minoffsetspertrigger": "remove it: the interval of the trigger determines the size of a micro-batch",
    "maxtriggerdelay": "remove it: a micro-batch does not wait for a minimum size",
    "maxrecordsperpartition": "use 'maxMessagesPerPartition'",
    "includeheaders": "remove it: the column 'properties' is always present",
    "kafka.group.id": "use 'commitGroup', which reports the position of a stream",
    "groupidprefix": "use 'commitGroup', which reports the position of a stream",
    "kafkaconsumer.polltimeoutms": "remove it: 'serverTimeout' limits how long a read waits for the server",
    "fetchoffset.numretries": "remove it: 'serverTimeout' limits how long a read retries",
    "fetchoffset.retryintervalms": "remove it: reads retry with a backoff",
    "versionasof": "use 'asOfTick'",
    "paths": "load(...) accepts one channel: use the option 'channels' for several",
}


def hint_of(name: str) -> str | None:
    """Return what to use instead of an unknown option, or None."""
    lower_name = name.lower()
    if (found := HINTS.get(lower_name)) is not None:
        return found
    if lower_name.startswith("kafka."):
        return "it is an option of Kafka's clients: remove it"
    return None
