"""The file with the cluster of a folder is read as written, or refused. Method: damage each byte."""

from pathlib import Path

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.cluster_file import (
    CLUSTER_FILE,
    MAX_TERMS,
    ClusterIdentity,
    read_identity,
    write_identity,
)
from tidelog_testing.servers.processes import ROOT

IDENTITY = ClusterIdentity("46a42e9367735c05", "n1", 0).with_term(3, 1)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    write_identity(tmp_path, IDENTITY)
    write_identity(tmp_path, later := IDENTITY.with_term(9, 70))
    assert read_identity(tmp_path) == later
    assert (later.last_term, later.revision, later.terms) == (9, 9, ((3, 1), (9, 70)))
    assert [path.name for path in tmp_path.iterdir()] == [CLUSTER_FILE]


def test_the_format_is_the_documented_one(tmp_path: Path) -> None:
    write_identity(tmp_path, IDENTITY)
    line = (tmp_path / CLUSTER_FILE).read_text().splitlines()[0]
    assert f"```json\n{line}\n```" in (ROOT / "docs/reference/format.md").read_text()


def test_any_damage_is_refused(tmp_path: Path) -> None:
    write_identity(tmp_path, IDENTITY)
    path = tmp_path / CLUSTER_FILE
    content = path.read_bytes()
    # The line feed at the end has no meaning.
    for place in range(len(content) - 1):
        for bit in range(8):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            if path.read_bytes().lower() == content:
                continue  # The checksum in uppercase is the same number.
            with pytest.raises(DataLossError):
                read_identity(tmp_path)
        path.write_bytes(content[:place])
        with pytest.raises(DataLossError):
            read_identity(tmp_path)


def test_old_terms_are_forgotten_in_the_end() -> None:
    identity = IDENTITY
    for term in range(4, 4 + 2 * MAX_TERMS):
        identity = identity.with_term(term, term)
    assert len(identity.terms) == MAX_TERMS
    assert identity.last_term == 3 + 2 * MAX_TERMS
