"""The cluster and node that a data folder belongs to: a file outside of the metadata store.

It detects an etcd that was wiped or set back to an earlier state: a node whose terms or revisions would decrease does
not start. The layout is described in docs/reference/format.md.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.durable_files import replace_file

CLUSTER_FILE: Final = "CLUSTER"
_VERSION: Final = 1
# Terms for which the first entry is remembered.
MAX_TERMS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The cluster membership of a data folder.

    Attributes:
        cluster_id: Id of the cluster, made with it.
        node_id: The node that owns this data.
        revision: The greatest revision of the metadata store seen at the beginning of a term.
        terms: The last terms of the node, each with the store sequence of the first entry written under it.
    """

    cluster_id: str
    node_id: str
    revision: int
    terms: tuple[tuple[int, int], ...] = ()

    @property
    def last_term(self) -> int:
        """The newest term; 0 before the first."""
        return self.terms[-1][0] if self.terms else 0

    def with_term(self, term: int, next_sequence: int) -> "ClusterIdentity":
        """Return the identity with a new term, under which entries from ``next_sequence`` on are written."""
        assert self.last_term < term
        terms = (*self.terms, (term, next_sequence))[-MAX_TERMS:]
        return ClusterIdentity(self.cluster_id, self.node_id, max(self.revision, term), terms)


def read_identity(folder: Path) -> ClusterIdentity | None:
    """Return the folder's identity; None if it was never part of a cluster.

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
