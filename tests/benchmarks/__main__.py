"""``python -m benchmarks``, with ``tests`` on the path."""

import sys

import typer

from benchmarks.commands import register
from tidelog_cli.entry import run_program
from tidelog_cli.invocation import invoke


def main() -> None:
    """Run a benchmark, with the set-up and the exit codes of ``tidelog``."""
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, help="Measure what this repository promises."
    )
    register(app)
    run_program("benchmarks", lambda given: invoke(app, given, "benchmarks"), sys.argv[1:])


if __name__ == "__main__":
    main()
