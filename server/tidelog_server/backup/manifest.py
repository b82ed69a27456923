"""The manifest of a backup: its state and files. It is written last: a backup without one is incomplete. Pure.

``manifest.json`` is one JSON object with a hash over the rest of itself; see docs/reference/format.md. The hash has no
key: it detects damage, but does not authenticate. So a manifest is validated like any other input: names have the form
that a backup writes, and numbers are numbers in range.
"""

import json
import re
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final

from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.core.ticks import MAX_TICK

MAX_BACKUP_FILE_BYTES: Final = 1 << 50

MANIFEST_VERSION: Final = 1
DIGEST_BYTES: Final = 32
_BACKUP_ID: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9]{1,20}")
_VERSION: Final = re.compile(r"[0-9A-Za-z.+!_-]{1,64}")
_HASH: Final = re.compile(rf"[0-9a-f]{{{2 * HASH_BYTES}}}")
_DIGEST: Final = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")
_ALWAYS_THERE: Final = frozenset({"FORMAT", "HEAD", "db/CURRENT"})
# The files of a checkpoint, and no others: a restore writes to these names.
_NAME: Final = re.compile(
    r"FORMAT|HEAD|db/(?:CURRENT|IDENTITY|rocksdict-config\.json|(?:MANIFEST|OPTIONS)-[0-9]{1,20}"
    r"|[0-9]{1,20}\.(?:sst|blob|log))"
)


class BackupError(Exception):
    """A backup cannot be taken, read or restored. The text states what the operator can do."""


class BackupDamagedError(BackupError):
    """A backup has changed since it was taken: it must not be restored."""


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One file of a backup.

    Attributes:
        name: Path below ``data/``, with slashes.
        bytes: Size in bytes.
        blake2b: BLAKE2b of its content, 32 bytes, hexadecimal.
        mtime_ns: Modification time of the copied file, in nanoseconds since the epoch.
        is_reused: True if it is a hard link to the file of an earlier backup.
    """

    name: str
    bytes: int
    blake2b: str
    mtime_ns: int
    is_reused: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """The state in a backup.

    Attributes:
        incarnation: Identity of the store, hexadecimal.
        tick: Exactly the messages up to this tick, inclusive, are in the backup.
        sequence: Number of entries ever written to the store.
        chain_hash: Chain hash of the last of them, hexadecimal.
        last_tick: The greatest tick of a message; 0 if there never was a message.
        created_ms: Creation time of its checkpoint, in milliseconds since the epoch.
    """

    incarnation: str
    tick: int
    sequence: int
    chain_hash: str
    last_tick: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete backup.

    Attributes:
        backup_id: Its name, which is also that of its folder.
        version: Version of the software that took it.
        facts: State in the backup.
        files: All of its files, sorted by name.
    """

    backup_id: str
    version: str
    facts: Facts
    files: tuple[BackupFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def copied_bytes(self) -> int:
        """Bytes of the files that are not links to an earlier backup."""
        return sum(file.bytes for file in self.files if not file.is_reused)

    def encode(self) -> bytes:
        """Return the stored form of the manifest."""
        fields: dict[str, Any] = {"manifest": MANIFEST_VERSION, **asdict(self)}
        return json.dumps({**fields, "digest": _digest_of(fields)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, name: str, content: bytes) -> "Manifest":
        """Decode the manifest that ``encode`` made for the backup called ``name``.

        Raises:
            BackupDamagedError: It is invalid, has changed, or belongs to another backup.
        """
        try:
            fields = json.loads(content)
            digest = fields.pop("digest")
            if digest != _digest_of(fields):
                raise BackupDamagedError(f"backup {name} is damaged: manifest.json has changed since it was written")
            version = fields.pop("manifest")
            if version != MANIFEST_VERSION:
                raise BackupError(
                    f"backup {name} has a manifest of version {version}, this program reads version "
                    f"{MANIFEST_VERSION}: use the program that took it, version {fields.get('version')!r:.64}"
                )
            facts = Facts(**fields.pop("facts"))
            files = tuple(BackupFile(**file) for file in fields.pop("files"))
            manifest = cls(**fields, facts=facts, files=files)
            _check(manifest)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BackupDamagedError(f"backup {name} is damaged: manifest.json cannot be read ({error})") from error
        if manifest.backup_id != name:
            raise BackupDamagedError(f"the folder {name} has the manifest of backup {manifest.backup_id}")
        return manifest


def is_backup_id(name: str) -> bool:
    """Return whether ``name`` has the form of a backup id."""
    return _BACKUP_ID.fullmatch(name) is not None


def _check(manifest: Manifest) -> None:
    """Raise ValueError if the manifest has a value that no backup writes."""
    facts = manifest.facts
    _check_texts(_BACKUP_ID, backup_id=manifest.backup_id)
    _check_texts(_VERSION, version=manifest.version)
    _check_texts(_HASH, incarnation=facts.incarnation, chain_hash=facts.chain_hash)
    _check_numbers(
        MAX_TICK, tick=facts.tick, sequence=facts.sequence, last_tick=facts.last_tick, created_ms=facts.created_ms
    )
    for file in manifest.files:
        _check_texts(_NAME, name=file.name)
        _check_texts(_DIGEST, blake2b=file.blake2b)
        _check_numbers(MAX_BACKUP_FILE_BYTES, bytes=file.bytes)
        _check_numbers(MAX_TICK, mtime_ns=file.mtime_ns)
        if not isinstance(file.is_reused, bool):
            raise ValueError(f"is_reused of {file.name} is {file.is_reused!r:.64}")
    names = {file.name for file in manifest.files}
    if len(names) < len(manifest.files):
        raise ValueError("a file is listed twice")
    if missing := _ALWAYS_THERE - names:
        raise ValueError(f"{min(missing)} is not listed")


def _check_texts(form: re.Pattern[str], **values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, str) or form.fullmatch(value) is None:
            raise ValueError(f"{name} is {value!r:.64}, which is invalid")


def _check_numbers(maximum: int, **values: object) -> None:
    for name, value in values.items():
        # In Python true is a number.
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
            raise ValueError(f"{name} is {value!r:.64}, expected a number from 0 to {maximum}")


def _digest_of(fields: dict[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return blake2b(canonical, digest_size=DIGEST_BYTES).hexdigest()
