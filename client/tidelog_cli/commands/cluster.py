"""``tidelog cluster``: nodes of a cluster, and locations of channels."""

from typing import Annotated

import typer

from tidelog_cli.connection import DEFAULT_ENDPOINT, EndpointOption, TimeoutOption, connected, run
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.output.records import OutputOption, note, print_records


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Show the nodes of a cluster and the channels they own.")
    group.command("ls", epilog=COMMON_CODES)(list_nodes)
    group.command(epilog=COMMON_CODES)(where)
    app.add_typer(group, name="cluster")


def list_nodes(
    endpoint: EndpointOption = DEFAULT_ENDPOINT, timeout: TimeoutOption = None, output: OutputOption = None
) -> None:
    """List the running nodes and what each owns. The leader allocates ticks."""

    async def ask() -> None:
        async with connected(endpoint) as client:
            cluster = await client.describe_cluster()
        if not cluster.cluster_id:
            note(f"the server at {endpoint} is not part of a cluster: it stores its metadata itself")
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

    run(ask(), timeout)


def where(
    channels: Annotated[list[str], typer.Argument(metavar="CHANNEL...", help="Names of channels.", show_default=False)],
    endpoint: EndpointOption = DEFAULT_ENDPOINT,
    timeout: TimeoutOption = None,
    output: OutputOption = None,
) -> None:
    """Show the node that owns each channel, and its address. Any node of the cluster can answer."""

    async def ask() -> list[str]:
        async with connected(endpoint) as client:
            found = await client.locate_channels(channels)
        print_records(
            [
                {"channel": name, "node": owner.node_id, "address": owner.address, "term": owner.term}
                for name in channels
                if (owner := found.get(name)) is not None
            ],
            output,
        )
        return [name for name in channels if name not in found]

    if missing := run(ask(), timeout):
        raise CommandError(
            f"{', '.join(missing)} not found: `tidelog channel ls` lists the channels", ExitCode.NOT_FOUND
        )
