"""``python -m examples.work_queue``."""

import argparse
import sys

from examples.work_queue.run import run_example
from tidelog_cli.exit_codes import CommandError, ExitCode


def main() -> int:
    """Run the example and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="work_queue", description="Do each job of a mailbox once while its workers are killed."
    )
    parser.add_argument("--flights", type=int, default=20_000, metavar="N", help="use the first N flights")
    parser.add_argument("--kills", type=int, default=10, metavar="K", help="kill a worker K times")
    arguments = parser.parse_args()
    try:
        run_example(flights=arguments.flights, kills=arguments.kills)
    except CommandError as error:
        sys.stderr.write(f"work_queue: {error}\n")
        return ExitCode.FAILURE
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
