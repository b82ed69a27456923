"""``tidelog cluster``: nodes of a cluster, and locations of channels."""

from typing import Annotated

import typer

from tidelog_cli.connection import PatientServer
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.option_groups import add_group
from tidelog_cli.output.records import OutputOption, note, print_records


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(
        app, "cluster", "Show the nodes of a cluster and the channels they own.", {"ls": list_nodes, "where": where}
    )


def list_nodes(server: PatientServer, output: OutputOption = None) -> None:
    """List the running nodes and what each owns. The leader allocates ticks."""
    cluster = server.ask(lambda client: client.describe_cluster())
    if not cluster.cluster_id:
        note(f"the server at {server.endpoint} is not part of a cluster: it stores its metadata itself")
    print_records(
        [
            {
                "node": node.node_id, "address": node.address, "http": node.http_address, "term": node.term,
                "leader": node.node_id == cluster.leader_node_id, "channels": node.channels,
                "vchannels": node.vchannels, "version": node.version,
            }
            for node in cluster.nodes
        ],
        output,
    )  # fmt: skip


def where(
    channels: Annotated[list[str], typer.Argument(metavar="CHANNEL...", help="Names of channels.", show_default=False)],
    server: PatientServer,
    output: OutputOption = None,
) -> None:
    """Show the node that owns each channel, and its address. Any node of the cluster can answer."""
    found = server.ask(lambda client: client.locate_channels(channels))
    print_records(
        [
            {"channel": name, "node": owner.node_id, "address": owner.address, "term": owner.term}
            for name in channels
            if (owner := found.get(name)) is not None
        ],
        output,
    )
    if missing := [name for name in channels if name not in found]:
        raise CommandError(
            f"{', '.join(missing)} not found: `tidelog channel ls` lists the channels", ExitCode.NOT_FOUND
        )
