"""A file of options for the client of an engine."""

from collections.abc import Collection, Mapping
from pathlib import Path

from tidelog_server.recordlog.engine import LogSetupError


def read_options(path: Path, forbidden: Collection[str] = ()) -> Mapping[str, str]:
    """Return the options in a file, ``name=value`` in each line; empty lines and those that begin with # are skipped.

    Args:
        path: The file.
        forbidden: Options that the log sets.

    Raises:
        LogSetupError: The file cannot be read, a line is no option, an option is given twice, or is forbidden.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LogSetupError(f"engine.options_file: {error}") from error
    options: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, value = (part.strip() for part in line.partition("="))
        where = f"{path}:{number}"
        if not separator or not name:
            raise LogSetupError(f"{where}: expected name=value, as in sasl.mechanism=PLAIN")
        if name in options:
            raise LogSetupError(f"{where}: the option {name} is given twice")
        if name in forbidden:
            raise LogSetupError(f"{where}: the option {name} may not be set: the log depends on its value")
        options[name] = value
    return options
