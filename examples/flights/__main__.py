"""``python -m examples.flights``."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from examples.flights.run import run_demo
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.local_spark import check_java

_LOCAL: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka": {"servers": "127.0.0.1:9092"},
    "pulsar": {"service_url": "pulsar://127.0.0.1:6650", "admin_url": ""},
}
"""Settings of the section engine that options may change, and their defaults."""


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
    parser.add_argument(
        "--engine", choices=list(_LOCAL), default="",
        help="keep the log in Kafka or Pulsar; the data folder is deleted with the killed server",
    )  # fmt: skip
    parser.add_argument("--servers", default="", metavar="HOST:PORT", help="brokers of Kafka; default: on this machine")
    parser.add_argument(
        "--service-url", default="", metavar="URL", help="address of Pulsar; default: on this machine, pulsar://..."
    )
    parser.add_argument(
        "--admin-url", default="", metavar="URL", help="address of its administration API; default: port 8080 there"
    )
    arguments = parser.parse_args()
    for engine, settings in _LOCAL.items():
        for name in settings:
            if getattr(arguments, name) and arguments.engine != engine:
                parser.error(f"--{name.replace('_', '-')} needs --engine {engine}")
    local = _LOCAL.get(arguments.engine, {})
    addresses = {name: getattr(arguments, name) or default for name, default in local.items()}
    try:
        check_java()
        run_demo(arguments.output, flights=arguments.flights, engine=arguments.engine, addresses=addresses)
    except CommandError as error:
        sys.stderr.write(f"tidelog demo: {error}\n")
        return ExitCode.FAILURE
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
