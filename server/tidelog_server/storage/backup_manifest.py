"""The manifest of a backup: what it holds, file by file. It is written last, so a backup without one is none. Pure.

``manifest.json``, one JSON object with a hash over the rest of itself; see FORMAT.md.
"""

import json
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final

MANIFEST_VERSION: Final = 1
DIGEST_BYTES: Final = 32


class BackupError(Exception):
    """A backup cannot be taken, read or restored. Its text tells the operator what to do."""


class BackupDamagedError(BackupError):
    """A backup is not what it was when it was taken: it must not be restored."""


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One file of a backup.

    Attributes:
        name: Path below ``data/``, with slashes.
        bytes: Its size.
        blake2b: BLAKE2b of its content, 32 bytes, hexadecimal.
        mtime_ns: When the file that was copied was last changed.
        is_reused: Whether it is a link to the file of an earlier backup.
    """

    name: str
    bytes: int
    blake2b: str
    mtime_ns: int
    is_reused: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """What a backup holds.

    Attributes:
        incarnation: Identity of the store, hexadecimal.
        tick: Every message with this tick or a smaller one is in it, and none with a greater one.
        sequence: Number of entries that the store ever had.
        chain_hash: Of the last of them, hexadecimal.
        last_tick: The greatest tick of a message; 0 if there never was one.
        created_ms: When its checkpoint was made, in milliseconds since the epoch.
    """

    incarnation: str
    tick: int
    sequence: int
    chain_hash: str
    last_tick: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole backup.

    Attributes:
        backup_id: Its name, and that of its folder.
        version: Of the software that took it.
        facts: What it holds.
        files: All of its files, in order of their names.
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
        """Bytes of the files that were not there in an earlier backup."""
        return sum(file.bytes for file in self.files if not file.is_reused)

    def encode(self) -> bytes:
        """Return the manifest as it is stored."""
        fields: dict[str, Any] = {"manifest": MANIFEST_VERSION, **asdict(self)}
        return json.dumps({**fields, "digest": _digest_of(fields)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, name: str, content: bytes) -> "Manifest":
        """Return the manifest that ``encode`` made for the backup called ``name``.

        Raises:
            BackupDamagedError: It is none, or not that one any more.
        """
        try:
            fields = json.loads(content)
            digest = fields.pop("digest")
            if digest != _digest_of(fields):
                raise BackupDamagedError(f"backup {name} is damaged: manifest.json is not what was written")
            version = fields.pop("manifest")
            if version != MANIFEST_VERSION:
                raise BackupError(
                    f"backup {name} has a manifest of version {version}, this program reads version "
                    f"{MANIFEST_VERSION}: use the one that took it, version {fields.get('version')}"
                )
            facts = Facts(**fields.pop("facts"))
            files = tuple(BackupFile(**file) for file in fields.pop("files"))
            manifest = cls(**fields, facts=facts, files=files)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BackupDamagedError(f"backup {name} is damaged: manifest.json cannot be read ({error})") from error
        if manifest.backup_id != name:
            raise BackupDamagedError(f"the folder {name} holds the manifest of backup {manifest.backup_id}")
        return manifest


def _digest_of(fields: dict[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return blake2b(canonical, digest_size=DIGEST_BYTES).hexdigest()
