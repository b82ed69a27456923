"""``python -m examples.flights``."""

import argparse
import sys
from pathlib import Path

from examples.flights.run import run_demo
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.local_spark import check_java


def main() -> int:
    """Run the demonstration and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="tidelog demo", description="Append a year of flights and read them in Spark."
    )
    parser.add_argument(
        "--flights", type=int, default=None, metavar="N", help="append only the first N flights; default: all"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), metavar="FOLDER", help="folder for the chart"
    )
    arguments = parser.parse_args()
    try:
        check_java()
        run_demo(arguments.output, flights=arguments.flights)
    except CommandError as error:
        sys.stderr.write(f"tidelog demo: {error}\n")
        return ExitCode.FAILURE
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
