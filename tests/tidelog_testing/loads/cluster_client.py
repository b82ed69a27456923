"""A cluster client in its own process: ``python -m tidelog_testing.loads.cluster_client append|read ...``.

``append ENDPOINTS TEXT CHANNEL...`` creates missing channels, appends the text to each, and prints the address of each
owner. ``read ENDPOINTS CHANNEL...`` prints the payloads of each. Both print one JSON object.
"""

import json
import sys
from collections.abc import Sequence

import tidelog


def append(endpoints: str, text: str, names: Sequence[str]) -> dict[str, str]:
    """Append to each channel, and return the addresses of the owners."""
    with tidelog.Cluster(endpoints) as cluster:
        for name in names:
            cluster.ensure_channel(name)
            cluster.vchannel(name).append(text.encode())
        return {name: cluster.owner_of(name).address for name in names}


def read(endpoints: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the payloads of each channel."""
    with tidelog.Cluster(endpoints) as cluster:
        return {
            name: [payload.decode() for batch in cluster.vchannel(name).scan() for payload in batch.payloads]
            for name in names
        }


def main() -> None:
    """Run the command of the arguments."""
    command, endpoints, *rest = sys.argv[1:]
    done = append(endpoints, rest[0], rest[1:]) if command == "append" else read(endpoints, rest)
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main()
