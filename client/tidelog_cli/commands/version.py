"""``tidelog version``: versions of Tidelog and its dependencies."""

import platform
from importlib import metadata

import typer

from tidelog_cli.output.records import OutputOption, print_records

_PARTS = ("grpcio", "protobuf", "rocksdict", "crc32c", "uvloop", "pyarrow", "pyspark")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(version)


def version(output: OutputOption = None) -> None:
    """Show the versions of Tidelog, Python and the main dependencies."""
    print_records([{"name": name, "version": text} for name, text in installed_versions().items()], output)


def installed_versions() -> dict[str, str]:
    """Return the version of each package; ``not installed`` for a package whose extra is missing."""
    versions = {"tidelog": _version("tidelog"), "python": platform.python_version()}
    return versions | {name: _version(name) for name in _PARTS}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
