"""``benchmarks security``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.own_server import bench_process
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.numbers import seconds
from tidelog_server.commands.bench.common import (
    DEFAULT_BATCH_BYTES,
    BatchBytesOption,
    BatchMessagesOption,
    FolderOption,
    JsonOption,
    MessagesOption,
    SizeOption,
    bench_folder,
    per_batch_of,
    print_measurement,
)
from tidelog_server.commands.bench.report import Report
from tidelog_server.core.limits import MAX_MESSAGES_PER_BATCH

if TYPE_CHECKING:
    from benchmarks.siege.measure import SecuritySettings


def security(
    *,
    messages: MessagesOption = 4_000_000,
    size: SizeOption = 100,
    batch_messages: BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    batch_bytes: BatchBytesOption = DEFAULT_BATCH_BYTES,
    streams: Annotated[int, typer.Option(min=0, help="Idle streams during the attack; 0 to measure TLS only.")] = 5_000,
    seconds: Annotated[
        float, typer.Option(min=1, callback=seconds, help="Seconds that the hostile client attacks, per round.")
    ] = 15,
    attack: Annotated[
        list[str] | None, typer.Option("--attack", help="Run only this attack; repeatable.", show_default=False)
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds of each attack and its floor.")] = 3,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure appends with TLS and a token against plaintext; then during idle streams and attacks."""
    from benchmarks.attacks import ATTACKS
    from benchmarks.siege.attack import AttackSettings, measure_attack
    from benchmarks.siege.measure import SecuritySettings

    known = {each.name: each for each in ATTACKS}
    if unknown := sorted(set(attack or ()) - known.keys()):
        raise CommandError(f"unknown attack '{unknown[0]}': expected one of {', '.join(known)}", ExitCode.USAGE)
    if attack is None:
        tls = SecuritySettings(messages, size, per_batch_of(size, batch_messages, batch_bytes), streams, seconds)
        _measure_security(tls, folder, as_json=json)
    for name in attack or known:
        with bench_folder(folder) as bench:
            settings = AttackSettings(seconds, rounds, size)
            print_measurement(measure_attack(known[name], bench, settings), as_json=json)


def _measure_security(settings: "SecuritySettings", folder: Path, *, as_json: bool) -> None:
    """Measure TLS against plaintext, and a client during idle streams and an attack."""
    from benchmarks.siege.measure import measure_siege, measure_tls
    from benchmarks.siege.server import secured_server
    from tidelog_server.commands.bench.server_process import ServerProcess

    # No quotas: they would limit what is measured.
    flags = {
        "quota.requests_per_s": "0", "limits.max_open_streams": str(2 * settings.streams + 1_000),
        "limits.max_open_streams_per_principal": str(settings.streams + 1_000),
    }  # fmt: skip

    async def tls(plain: ServerProcess, bench: Path) -> Report:
        async with secured_server(bench, flags) as secured:
            return await measure_tls(plain, secured, settings)

    async def siege(bench: Path, *, asks_for_certificates: bool) -> Report:
        async with secured_server(bench, flags, asks_for_certificates=asks_for_certificates) as secured:
            return await measure_siege(secured, settings)

    with bench_process(folder, {}) as (process, bench):
        print_measurement(tls(process, bench), as_json=as_json)
    if settings.streams:
        # Its own server, so that the reported memory is that of this measurement.
        for asks in (False, True):
            with bench_folder(folder) as bench:
                print_measurement(siege(bench, asks_for_certificates=asks), as_json=as_json)
