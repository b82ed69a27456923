"""``tidelog config``: effective settings of a server, and the origin of each."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.json_text import json_text
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.options.passed import is_passed
from tidelog_cli.output.escapes import say
from tidelog_cli.output.records import OutputOption, QuietOption, Record, note, print_records
from tidelog_server.commands.config_flags import (
    SETTINGS_HELP,
    TAKES_SETTINGS,
    ConfigOption,
    effective_config,
    parse_file_and_settings,
    parse_settings,
)

if TYPE_CHECKING:
    from tidelog_server.config import Config

_EPILOG = f"{SETTINGS_HELP} {COMMON_CODES} 78 if the configuration is invalid."


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Show or check the configuration of a server.")
    group.command(context_settings=TAKES_SETTINGS, epilog=_EPILOG)(show)
    group.command(context_settings=TAKES_SETTINGS, epilog=_EPILOG)(validate)
    group.command(epilog=COMMON_CODES)(schema)
    app.add_typer(group, name="config")


def show(context: typer.Context, config: ConfigOption = None, output: OutputOption = None) -> None:
    """Show every setting with its effective value, origin and default."""
    print_records(setting_records(effective_config(config, parse_settings(context.args))), output)


def validate(
    context: typer.Context,
    # Flags of settings are among them: click has no argument that leaves them out.
    file: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]", help="TOML file of settings, as --config.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Check the settings of file, environment and flags without starting a server."""
    from tidelog_server.config import SERVICE_LINKS_HINT

    named, flags = parse_file_and_settings([*(file or ()), *context.args])
    if named is not None and is_passed(context, "config"):
        raise CommandError("both --config and a file are given: give one of them", ExitCode.USAGE)
    effective = effective_config(named or config, flags)
    changed = sum(origin != "built-in" for origin in effective.origins.values())
    if effective.ignored:
        note(f"ignored {', '.join(effective.ignored)}: {SERVICE_LINKS_HINT}")
    note(f"the configuration is valid: {changed} of {len(effective.origins)} settings changed", quiet=quiet)


def schema() -> None:
    """Print the JSON Schema of a configuration file, with which editors complete and check one.

    `tidelog config validate` also checks rules between settings, which the schema does not have.
    """
    from tidelog_server.config import settings_schema

    say(json_text(settings_schema(), indent=2))


def setting_records(effective: "Config") -> list[Record]:
    """Return every setting with its effective value without passwords in addresses, its origin and its default."""
    from tidelog_server.config import describe_settings

    shown = effective.shown
    return [
        {
            "key": setting.key,
            "value": shown[setting.key],
            "origin": effective.origins[setting.key],
            "default": setting.default,
            "description": setting.text,
        }
        for setting in describe_settings()
    ]
