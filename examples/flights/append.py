"""The appending half: a producer for each vchannel, and a follower that shows arriving messages."""

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights.flights import MESSAGE_TYPE, SOURCE, Flight, lane_of
from tidelog import Client, Message, Producer, Scan, StoredMessage

_STEP: Final = 2_000
_SHOWN: Final = 5
_FOLLOWER_TIMEOUT_S: Final = 60.0


def append_flights(endpoint: str, channel: str, lanes: int, flights: Sequence[Flight], progress: Console) -> float:
    """Create the channel and append all flights; return the seconds until the last acknowledgement.

    A follower reads from the beginning and shows some of the flights as they arrive. On return, every flight is on disk
    and the follower has ended.

    Raises:
        TidelogError: Not all flights were acknowledged.
    """
    names = [f"{channel}/{lane}" for lane in range(lanes)]
    with Client(endpoint) as client, Client(endpoint) as follower, ThreadPoolExecutor(1) as threads:
        client.create_channel(channel, vchannels=lanes)
        with follower.tail(names) as arrivals:
            following = threads.submit(_follow, arrivals, len(flights), progress)
            append_s = _append(client, names, flights, progress)
            following.result(_FOLLOWER_TIMEOUT_S)
    return append_s


def _append(client: Client, names: Sequence[str], flights: Sequence[Flight], progress: Console) -> float:
    begin = time.perf_counter()
    with ExitStack() as stack, _progress_bar(progress) as bar:
        producers = [stack.enter_context(client.producer(name)) for name in names]
        task = bar.add_task("appending", total=len(flights))
        for start in range(0, len(flights), _STEP):
            step = flights[start : start + _STEP]
            _send(producers, step)
            bar.advance(task, len(step))
        for producer in producers:
            producer.flush()
        return time.perf_counter() - begin


def _send(producers: Sequence[Producer], flights: Sequence[Flight]) -> None:
    by_lane: dict[int, list[Message]] = defaultdict(list)
    for flight in flights:
        by_lane[lane_of(flight.carrier, len(producers))].append(_message(flight))
    for lane, messages in by_lane.items():
        producers[lane].send_many(messages)


def _message(flight: Flight) -> Message:
    return Message(
        flight.payload,
        key=flight.carrier.encode(),
        type=MESSAGE_TYPE,
        properties={"source": SOURCE, "line": str(flight.line)},
        event_time=flight.event_time,
    )


def _follow(arrivals: Scan, total: int, progress: Console) -> None:
    """Show up to ``_SHOWN`` messages, spread over the first 5/6 of ``total``; return then, or after the last one."""
    seen = shown = 0
    for batch in arrivals:
        seen += len(batch)
        if seen * (_SHOWN + 1) >= total * (shown + 1):
            shown += 1
            progress.print(f"  live: {_described(batch[-1])}", style="dim", highlight=False)
        if shown == _SHOWN or seen == total:
            return


def _described(message: StoredMessage) -> str:
    flight = json.loads(message.payload)
    return (
        f"{message.vchannel} at {message.tick.describe()}: {flight['carrier']}{flight['flight']} "
        f"{flight['origin']}-{flight['dest']} on {flight['year']}-{flight['month']:02}-{flight['day']:02}"
    )


def _progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("flights"),
        TimeElapsedColumn(),
        console=console,
    )
