"""Settings on the command line: ``--section.name value`` for every setting, and the option for the file."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.files import local_path

if TYPE_CHECKING:
    # The configuration needs the extra `server`, the client commands do not.
    from tidelog_server.config import Config

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="TIDELOG_CONFIG", parser=local_path, help="TOML file of settings."),
]
# Flags of settings are passed to the configuration, which validates them and suggests the closest name.
TAKES_SETTINGS: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}
SETTINGS_HELP = (
    "Every setting can be given as a flag `--section.name VALUE`, as an environment variable `TIDELOG_SECTION__NAME`, "
    "or in the file; `tidelog config show` lists them."
)


def parse_settings(arguments: Sequence[str]) -> dict[str, str]:
    """Return ``{section.name: value}`` of flags ``--section.name value`` or ``--section.name=value``.

    Raises:
        CommandError: An argument is not such a flag, has no value, or is given twice.
    """
    return _parsed(arguments, max_words=0)[1]


def parse_file_and_settings(arguments: Sequence[str]) -> tuple[Path | None, dict[str, str]]:
    """Return the file that is named before, among or after such flags, and what ``parse_settings`` returns.

    Raises:
        CommandError: As ``parse_settings``, or there are two files.
    """
    words, flags = _parsed(arguments, max_words=1)
    return (local_path(words[0]) if words else None), flags


def _parsed(arguments: Sequence[str], *, max_words: int) -> tuple[list[str], dict[str, str]]:
    """Return the arguments that are no flags, and the flags."""
    words: list[str] = []
    flags: dict[str, str] = {}
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        if not argument.startswith("--"):
            words.append(argument)
            if len(words) > max_words:
                raise CommandError(f"unexpected argument '{argument}'. {SETTINGS_HELP}", ExitCode.USAGE)
            continue
        name, separator, value = argument[2:].partition("=")
        if not separator:
            if not remaining:
                if "." not in name:
                    raise CommandError(f"no such option: {argument}. {SETTINGS_HELP}", ExitCode.USAGE)
                raise CommandError(f"{argument} needs a value: {argument} VALUE", ExitCode.USAGE)
            value = remaining.pop(0)
        if name in flags:
            raise CommandError(f"--{name} is given twice: give it once", ExitCode.USAGE)
        flags[name] = value
    return words, flags


def effective_config(path: Path | None, flags: Mapping[str, str]) -> "Config":
    """Return the configuration from all four layers: defaults, file, environment and flags.

    Raises:
        CommandError: The configuration is invalid.
    """
    from tidelog_server.config import ConfigError, load_config

    try:
        return load_config(path, os.environ, flags)
    except ConfigError as error:
        raise CommandError(error.problems, ExitCode.BAD_CONFIG) from error
