"""Certificates for development are kept while they are good, and made again whole.

Method: files in a folder, a chosen time, and TLS between two sockets is left to the tests of servers.
"""

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tidelog_server.commands.self_certificates import AUTHORITY, LIFE, RENEW_BEFORE, ensure_certificates, main

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["localhost", "127.0.0.1", "::1", "log.example"]
FILES = {"authority.pem", "server.pem", "server.key", "client.pem", "client.key"}


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "missing" / "tls"
    assert ensure_certificates(folder, NAMES, NOW)
    return folder


def test_the_files_are_of_one_authority_and_for_this_user(folder: Path) -> None:
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == dict.fromkeys(FILES, 0o600)
    assert folder.stat().st_mode & 0o777 == 0o700
    authority, server = certificate(folder / AUTHORITY), certificate(folder / "server.pem")
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "log.example"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert load_pem_private_key((folder / "server.key").read_bytes(), None).public_key() == server.public_key()


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ensure_certificates(tmp_path / "tls", NAMES, NOW)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("after", "is_new"),
    [
        (timedelta(), False), (LIFE - RENEW_BEFORE - timedelta(seconds=1), False), (LIFE - RENEW_BEFORE, True),
        (2 * LIFE, True), (-timedelta(minutes=4), False), (-timedelta(days=1), True),
    ],
    ids=str,
)  # fmt: skip
def test_they_are_kept_until_they_expire_soon_or_the_clock_was_ahead(
    folder: Path, after: timedelta, is_new: bool
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert ensure_certificates(folder, NAMES, NOW + after) is is_new
    kept = [path.name for path in folder.iterdir() if path.read_bytes() == before[path.name]]
    assert set(kept) == (set() if is_new else FILES)


@pytest.mark.parametrize("names", [NAMES[:-1], [*NAMES, "192.0.2.7"], ["log.example", *NAMES[:-1]]], ids=str)
def test_they_are_made_again_for_other_names(folder: Path, names: list[str]) -> None:
    assert ensure_certificates(folder, names, NOW)
    assert not ensure_certificates(folder, names, NOW)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_missing_damaged_or_of_another_attempt_is_replaced_with_all_others(
    folder: Path, tmp_path: Path, name: str
) -> None:
    ensure_certificates(tmp_path / "other", NAMES, NOW)
    path = folder / name

    def swap() -> None:
        shutil.copy(tmp_path / "other" / name, path)

    for harm in (path.unlink, lambda: path.write_bytes(b""), lambda: path.write_bytes(b"\xff none"), swap):
        harm()
        assert ensure_certificates(folder, NAMES, NOW)
        assert not ensure_certificates(folder, NAMES, NOW)
        for role in ("server", "client"):
            certificate(folder / f"{role}.pem").verify_directly_issued_by(certificate(folder / AUTHORITY))


def test_a_key_that_others_could_read_is_replaced(folder: Path) -> None:
    (folder / "server.key").chmod(0o640)
    assert ensure_certificates(folder, NAMES, NOW)
    assert (folder / "server.key").stat().st_mode & 0o777 == 0o600


def test_a_certificate_without_names_is_replaced(folder: Path) -> None:
    shutil.copy(folder / AUTHORITY, folder / "server.pem")
    assert ensure_certificates(folder, NAMES, NOW)


def test_the_module_is_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(tmp_path / "tls"), "--name", "a.example, 192.0.2.7", "--name", "", "--name", "b.example"]
    for told in ("made for a.example, 192.0.2.7, b.example, valid for 90 days", "valid: nothing to do"):
        assert main(arguments) == 0
        assert capsys.readouterr().out == f"the certificates in {tmp_path / 'tls'}: {told}\n"
