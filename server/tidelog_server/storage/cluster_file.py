"""Which cluster a data folder belongs to, and as which node: a file that the metadata store knows nothing of.

What etcd forgot, because it was wiped or brought back to an earlier state, this remembers: a node whose terms or
revisions would go back does not start. The layout is described in FORMAT.md.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.durable_files import replace_file

CLUSTER_FILE: Final = "CLUSTER"
_VERSION: Final = 1
# Of so many terms is it remembered from which entry on they held.
MAX_TERMS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What a data folder knows of its cluster.

    Attributes:
        cluster_id: Of the cluster, made with it.
        node_id: The node whose data this is.
        revision: The greatest revision of the metadata store that was seen when a term began.
        terms: The last terms of the node, each with the store's sequence from which on entries were written under it.
    """

    cluster_id: str
    node_id: str
    revision: int
    terms: tuple[tuple[int, int], ...] = ()

    @property
    def last_term(self) -> int:
        """The newest term; 0 for none."""
        return self.terms[-1][0] if self.terms else 0

    def with_term(self, term: int, next_sequence: int) -> "ClusterIdentity":
        """Return this with a new term, under which entries from ``next_sequence`` on are written."""
        assert self.last_term < term
        terms = (*self.terms, (term, next_sequence))[-MAX_TERMS:]
        return ClusterIdentity(self.cluster_id, self.node_id, max(self.revision, term), terms)


def read_identity(folder: Path) -> ClusterIdentity | None:
    """Return what the folder knows; None if it was never part of a cluster.

    Raises:
        DataLossError: The file is damaged.
    """
    path = folder / CLUSTER_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    body, _, crc = content.rstrip(b"\n").rpartition(b"\n")
    try:
        if int(crc, 16) != crc32c(body):
            raise ValueError("its checksum is wrong")
        fields = json.loads(body)
        if fields.pop("version") != _VERSION:
            raise ValueError("its version is unknown")
        fields["terms"] = tuple((int(term), int(sequence)) for term, sequence in fields["terms"])
        return ClusterIdentity(**fields)
    except (ValueError, TypeError, KeyError) as error:
        raise DataLossError(
            f"{path} cannot be read ({error}): restore the data folder from a backup", file=CLUSTER_FILE
        ) from error


def write_identity(folder: Path, identity: ClusterIdentity) -> None:
    """Replace the file, atomically and durably. Raises OSError."""
    body = json.dumps({"version": _VERSION, **asdict(identity)}, separators=(",", ":")).encode()
    replace_file(folder / CLUSTER_FILE, body + b"\n%08x\n" % crc32c(body))
