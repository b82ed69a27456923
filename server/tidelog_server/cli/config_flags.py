"""Settings on the command line: ``--section.name value`` for every setting, and where the file comes from."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog_server.cli.exit_codes import CommandError, ExitCode

if TYPE_CHECKING:
    # Configuration needs the extra `server`, the commands of a client do not.
    from tidelog_server.config import Config

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", envvar="TIDELOG_CONFIG", help="TOML file with settings.")
]
# Flags of settings are passed on as they are: the configuration knows them and suggests what was meant.
TAKES_SETTINGS: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}
SETTINGS_HELP = (
    "Every setting is a flag `--section.name VALUE`, a variable `TIDELOG_SECTION__NAME`, and a line in the file; "
    "`tidelog config show` lists them."
)


def parse_settings(arguments: Sequence[str]) -> dict[str, str]:
    """Return ``section.name`` and value of each flag ``--section.name value`` or ``--section.name=value``.

    Raises:
        CommandError: An argument is no such flag, has no value, or is given twice.
    """
    flags: dict[str, str] = {}
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        if not argument.startswith("--"):
            raise CommandError(f"unexpected argument '{argument}'. {SETTINGS_HELP}", ExitCode.USAGE)
        name, separator, value = argument[2:].partition("=")
        if not separator:
            if not remaining:
                raise CommandError(f"{argument} needs a value: {argument} VALUE", ExitCode.USAGE)
            value = remaining.pop(0)
        if name in flags:
            raise CommandError(f"--{name} is given twice: once is enough", ExitCode.USAGE)
        flags[name] = value
    return flags


def effective_config(path: Path | None, arguments: Sequence[str]) -> "Config":
    """Return the configuration from all four layers.

    Raises:
        CommandError: It is refused.
    """
    from tidelog_server.config import ConfigError, load_config

    try:
        return load_config(path, os.environ, parse_settings(arguments))
    except ConfigError as error:
        raise CommandError(str(error), ExitCode.BAD_CONFIG) from error
