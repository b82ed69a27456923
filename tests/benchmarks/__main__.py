"""``python -m benchmarks``, with ``tests`` on the path."""

import sys

import typer

from benchmarks.commands import register
from tidelog_cli.exit_codes import CommandError
from tidelog_cli.grpc_stack import log_errors_only, use_polling_stack


def main() -> None:
    """Run a benchmark, with the set-up and the exit codes of ``tidelog bench``."""
    use_polling_stack()
    log_errors_only()
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, help="Measure what this repository promises."
    )
    register(app)
    try:
        app(prog_name="benchmarks")
    except CommandError as error:
        sys.stderr.write(f"benchmarks: {error.message}\n")
        sys.exit(error.code)


if __name__ == "__main__":
    main()
