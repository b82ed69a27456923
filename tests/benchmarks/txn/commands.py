"""Benchmarks of transactions."""

from pathlib import Path
from typing import Annotated

import typer

from tidelog_server.commands.bench.common import (
    EndpointOption,
    FolderOption,
    JsonOption,
    SizeOption,
    bench_target,
    print_measurement,
    settings_for,
)


def txn(
    *,
    transactions: Annotated[
        int, typer.Option(min=1, help="Number of transactions, on one vchannel and again on four.")
    ] = 60_000,
    messages: Annotated[int, typer.Option("--messages", min=4, max=1_000, help="Messages per transaction.")] = 10,
    size: SizeOption = 100,
    concurrency: Annotated[int, typer.Option(min=1, help="Number of concurrent transactions.")] = 64,
    large_mib: Annotated[int, typer.Option(min=0, help="MiB of the large transaction; 0 to skip it.")] = 1_024,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure commits per second on one vchannel, and on four of two channels, against appends of the same messages.

    Then measure one large transaction, and the server's memory for it.
    """
    from benchmarks.txn.large_txn import LargeTxnSettings, measure_large_txn
    from benchmarks.txn.txn import TxnSettings, measure_txn

    with bench_target(endpoint, folder, settings_for(size)) as (target, _):
        for channels, vchannels in ((1, 1), (2, 4)):
            settings = TxnSettings(transactions, messages, size, concurrency, channels, vchannels)
            print_measurement(measure_txn(target, settings), as_json=json)
    if large_mib:
        # Its own server, so that the reported memory is that of this transaction.
        large = LargeTxnSettings(large_mib, size)
        with bench_target(endpoint, folder, settings_for(size)) as (target, _):
            print_measurement(measure_large_txn(target, large), as_json=json)
