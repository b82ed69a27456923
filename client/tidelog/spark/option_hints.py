"""What to use for the options of other sources that people try first: Spark's Kafka connector, Delta and files."""

from typing import Final

_BOUNDS: Final = "a batch is bounded by 'startingTick' and 'endingTick', or by times"

# By name in small letters, as Spark hands them over. client/SPARK.md has those of Kafka's connector as a table.
HINTS: Final = {
    "kafka.bootstrap.servers": "use 'endpoint'",
    "subscribe": "use 'channels', or 'channel' for one",
    "subscribepattern": "use 'channelPattern', which is a name and '.*', not a regular expression",
    "assign": "use 'vchannels': orders/0,orders/2",
    "topic": "use 'channel'",
    "endingoffsets": f"{_BOUNDS}; a stream has no end",
    "startingoffsetsbytimestamp": "use 'startingTimestamp'",
    "endingoffsetsbytimestamp": "use 'endingTimestamp'",
    "startingoffsetsbytimestampstrategy": "leave it out: a start by time is the first message at that time or later",
    "minoffsetspertrigger": "leave it out: the interval of the trigger says how much comes together",
    "maxtriggerdelay": "leave it out: a micro-batch waits for no minimum",
    "maxrecordsperpartition": "use 'maxMessagesPerPartition'",
    "includeheaders": "leave it out: the column 'properties' is always there",
    "kafka.group.id": "use 'commitGroup', which shows how far a stream is",
    "groupidprefix": "use 'commitGroup', which shows how far a stream is",
    "kafkaconsumer.polltimeoutms": "leave it out: a read waits for the server by itself",
    "fetchoffset.numretries": "leave it out: a read waits for the server by itself",
    "fetchoffset.retryintervalms": "leave it out: a read waits for the server by itself",
    "versionasof": "use 'asOfTick'",
    "paths": "load(...) takes one channel: name several in the option 'channels'",
}


def hint_of(name: str) -> str | None:
    """Return what to do about an option that the source does not have; None where its name says nothing."""
    lower_name = name.lower()
    if (found := HINTS.get(lower_name)) is not None:
        return found
    if lower_name.startswith("kafka."):
        return "it is one of Kafka's clients: leave it out"
    return None
