"""``tidelog txn``: list, describe and abort staged transactions."""

from typing import Annotated

import typer

from tidelog import Tick, TransactionDescription
from tidelog_cli.connection import Server
from tidelog_cli.option_groups import add_group
from tidelog_cli.output.records import OutputOption, QuietOption, Record, note, print_records
from tidelog_cli.output.watch import Watch

IdsArgument = Annotated[
    list[int],
    typer.Argument(metavar="TXN_ID...", min=1, max=(1 << 63) - 1, help="Transaction ids, as printed by ls."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(app, "txn", "List, describe and abort transactions staged on the server.", [ls, describe, abort])


def ls(*, watch: Watch, server: Server, output: OutputOption = None) -> None:
    """List the open transactions of all clients, oldest first."""
    watch.show(lambda: [_row(txn) for txn in server.ask(lambda client: client.list_txns())], output)


def describe(txn_ids: IdsArgument, *, server: Server, output: OutputOption = None) -> None:
    """Describe open or committed transactions. For one that ended otherwise, fail and report how it ended."""
    described = server.ask_each(txn_ids, lambda client, txn_id: client.describe_txn(txn_id))
    print_records([_row(txn) for txn in described], output)


def abort(
    txn_ids: IdsArgument,
    *,
    reason: Annotated[str, typer.Option(help="Reason, written to the server's log.")],
    server: Server,
    quiet: QuietOption = False,
) -> None:
    """Abort open transactions of any client. None of their messages are appended."""
    server.ask_each(txn_ids, lambda client, txn_id: client.abort_txn(txn_id, reason))
    note(f"aborted {', '.join(map(str, txn_ids))}", quiet=quiet)


def _row(txn: TransactionDescription) -> Record:
    return {
        "txn_id": txn.txn_id,
        "state": txn.state,
        "begun": f"{Tick(txn.txn_id).time:%Y-%m-%dT%H:%M:%SZ}",
        "principal": txn.principal,
        "client_id": txn.client_id,
        "vchannels": list(txn.vchannels),
        "batches": txn.batches,
        "messages": txn.messages,
        "bytes": txn.bytes,
        "keepalive_s": txn.keepalive_s,
        "expires_in_s": round(txn.expires_in_s, 3),
    }
