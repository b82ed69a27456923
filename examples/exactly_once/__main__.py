"""``python -m examples.exactly_once``."""

import argparse
import sys

from examples.exactly_once.run import run_example
from tidelog_cli.exit_codes import CommandError, ExitCode


def main() -> int:
    """Run the example and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="exactly_once", description="Count flights in a database while their consumer is killed."
    )
    parser.add_argument(
        "--database", default="", metavar="PLACE", help="sqlite:PATH or postgres:CONNINFO, without totals"
    )
    parser.add_argument("--flights", type=int, default=20_000, metavar="N", help="use the first N flights")
    parser.add_argument("--kills", type=int, default=5, metavar="K", help="kill the consumer K times")
    arguments = parser.parse_args()
    try:
        run_example(arguments.database, flights=arguments.flights, kills=arguments.kills)
    except CommandError as error:
        sys.stderr.write(f"exactly_once: {error}\n")
        return ExitCode.FAILURE
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
