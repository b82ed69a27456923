"""``tidelog config``: effective settings of a server, and the origin of each."""

import typer

from tidelog_cli.exit_codes import COMMON_CODES
from tidelog_cli.output.records import OutputOption, QuietOption, note, print_records
from tidelog_server.commands.config_flags import SETTINGS_HELP, TAKES_SETTINGS, ConfigOption, effective_config

_EPILOG = f"{SETTINGS_HELP} {COMMON_CODES} 78 if the configuration is invalid."


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Show or check the configuration of a server.")
    group.command(context_settings=TAKES_SETTINGS, epilog=_EPILOG)(show)
    group.command(context_settings=TAKES_SETTINGS, epilog=_EPILOG)(validate)
    app.add_typer(group, name="config")


def show(context: typer.Context, config: ConfigOption = None, output: OutputOption = None) -> None:
    """Show every setting with its effective value, origin and default."""
    from tidelog_server.config import describe_settings

    effective = effective_config(config, context.args)
    print_records(
        [
            {
                "key": setting.key,
                "value": effective.texts[setting.key],
                "origin": effective.origins[setting.key],
                "default": setting.default,
                "description": setting.text,
            }
            for setting in describe_settings()
        ],
        output,
    )


def validate(context: typer.Context, config: ConfigOption = None, quiet: QuietOption = False) -> None:
    """Check the settings of file, environment and flags without starting a server."""
    from tidelog_server.config import SERVICE_LINKS_HINT

    effective = effective_config(config, context.args)
    changed = sum(origin != "built-in" for origin in effective.origins.values())
    if effective.ignored:
        note(f"ignored {', '.join(effective.ignored)}: {SERVICE_LINKS_HINT}")
    note(f"the configuration is valid: {changed} of {len(effective.origins)} settings changed", quiet=quiet)
