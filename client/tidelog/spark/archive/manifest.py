"""The manifest of an archive: its files, and the range of ticks that they cover.

An archive is a folder that the driver and all executors reach under the same path::

    <root>/_tidelog/00000000000000000001.json    commit 1, then 2, ...; immutable
    <root>/_tidelog/lock                         held by the run that writes
    <root>/data/channel=orders/vchannel=0/*.parquet
    <root>/_delta_log                            optional Delta table; see tidelog.spark.pipelines.delta

A commit is atomic: it is written under another name, synced, and linked to its number, which fails if another run has
taken the number. A file in ``data`` that no commit names does not belong to the archive. An object store would use a
conditional put instead.
"""

import fcntl
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tidelog.spark.archive.files import (
    MAX_COMMIT_BYTES,
    check_numbers,
    check_path,
    check_texts,
    read_inside,
)
from tidelog.spark.errors import ArchiveError, OptionError
from tidelog.spark.names import parts_of

FORMAT: Final = 1
FOLDER: Final = "_tidelog"
DATA: Final = "data"
DELTA_LOG: Final = "_delta_log"
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_TEXT: Final = re.compile(r"[ -~]{0,200}")
_SUFFIX: Final = ".json"
_DIGITS: Final = 20
_SHOWN: Final = 3
# Entries of an empty file system.
_OF_THE_SYSTEM: Final = frozenset({"lost+found"})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_THIS_MACHINE: Final = re.compile(r"//(?:localhost)?(?=/)")


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One Parquet file: the rows of a range of one vchannel, in tick order.

    Attributes:
        path: Path relative to the root.
        vchannel: ``<channel>/<index>``.
        first_tick, last_tick: Ticks of its first and last message, both inclusive.
        messages: Number of messages, at least one.
        bytes: Size of the file.
        digest, content_digest: Digests of its messages; see ``tidelog.spark.pipelines.digest``.
    """

    path: str
    vchannel: str
    first_tick: int
    last_tick: int
    messages: int
    bytes: int
    digest: str
    content_digest: str

    def mismatch(self, messages: int, digest: str, content_digest: str) -> str:
        """Return how the content of the file differs from the manifest; empty if it does not."""
        if (messages, digest, content_digest) == (self.messages, self.digest, self.content_digest):
            return ""
        return (
            f"{self.path} has {messages} messages with digests {digest} and {content_digest}, expected "
            f"{self.messages} with {self.digest} and {self.content_digest} by the manifest: restore it from a copy"
        )


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """The range that a commit adds to a vchannel: all messages with begin_tick <= tick < end_tick.

    Attributes:
        begin_tick: End of the previous commit, or the first available tick.
        end_tick: The cut of the run: the same for all vchannels of a commit.
        created_tick: Creation tick of the channel, which distinguishes it from a re-created one.
        lost_before: ``begin_tick`` if the ticks since the previous commit's end were trimmed before they were archived;
            0 if nothing was lost.
    """

    begin_tick: int
    end_tick: int
    created_tick: int
    lost_before: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """One run of ``archive``.

    Attributes:
        number: From 1, without gaps.
        run: Id of the run, which is part of its file names.
        time: Time of the commit, ISO 8601 in UTC.
        ranges: Added range by vchannel.
        files: Added files.
    """

    number: int
    run: str
    time: str
    ranges: Mapping[str, ArchivedRange]
    files: Sequence[ArchivedFile]

    def to_json(self) -> str:
        """Return the content of the commit's file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, name: str) -> "Commit":
        """Return the commit of a file's content.

        Raises:
            ArchiveError: The content is not a commit, or has the format of a newer version of Tidelog.
        """
        try:
            parsed: dict[str, Any] = json.loads(text)
            if parsed.pop("format") != FORMAT:
                raise ArchiveError(f"the commit {name} has a format other than {FORMAT}: read it with a newer Tidelog")
            ranges = {name: ArchivedRange(**value) for name, value in parsed.pop("ranges").items()}
            files = tuple(ArchivedFile(**value) for value in parsed.pop("files"))
            commit = cls(ranges=ranges, files=files, **parsed)
            _check_values(commit)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ArchiveError(f"the commit {name} is damaged ({error}): restore it from a copy") from error
        return commit


@dataclass(frozen=True, slots=True)
class ArchivedVchannel:
    """One vchannel of an archive.

    Attributes:
        begin_tick: First archived tick, inclusive.
        end_tick: Everything from ``begin_tick`` below it is in the archive or in ``lost``.
        created_tick: Creation tick of the channel.
        files: Files in tick order.
        lost: Half-open ranges of ticks that were trimmed before they were archived.
    """

    begin_tick: int
    end_tick: int
    created_tick: int
    files: tuple[ArchivedFile, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive as of its last commit.

    Attributes:
        root: The archive's folder.
        last_commit: Number of the last commit; 0 for an empty archive.
        vchannels: State by vchannel.
    """

    root: Path
    last_commit: int = 0
    vchannels: Mapping[str, ArchivedVchannel] = field(default_factory=dict)

    @property
    def files(self) -> list[ArchivedFile]:
        """All files of the archive."""
        return [file for vchannel in self.vchannels.values() for file in vchannel.files]

    @property
    def messages(self) -> int:
        """Number of messages in the archive."""
        return sum(file.messages for file in self.files)


def folder_path(text: str | Path) -> Path:
    """Return the absolute path of a folder, given as a path or as a ``file:`` URL.

    Raises:
        OptionError: It is another URL, such as that of an object store, which as a path would be a folder ``s3:``.
    """
    found = _SCHEME.fullmatch(str(text))
    if found is None:
        return Path(text).absolute()
    # pathlib collapses the two slashes of a URL to one.
    path = _THIS_MACHINE.sub("", found[2], count=1)
    if found[1].lower() == "file" and path.startswith("/") and not path.startswith("//"):
        return Path(path)
    raise OptionError(
        f"{str(text)!r} is not a file system path: object stores and other URLs are not supported. Use the path of a "
        "folder that the driver and all executors can reach, such as a network mount (./ before a name with a colon)"
    )


def load(root: str | Path, *, must_exist: bool = True) -> Archive:
    """Return the archive at ``root``.

    Raises:
        ArchiveError: The archive is damaged, or does not exist and ``must_exist`` is set.
        OptionError: See ``folder_path``.
    """
    folder = folder_path(root)
    numbers = sorted(_numbers(folder / FOLDER))
    if not numbers and must_exist:
        raise ArchiveError(f"there is no archive at {folder}: create one with `tidelog pipeline archive`")
    if numbers != list(range(1, len(numbers) + 1)):
        missing = min(set(range(1, len(numbers) + 1)) - set(numbers))
        raise ArchiveError(
            f"the archive at {folder} lacks commit {missing}, but has later ones: restore it from a copy"
        )
    return fold(folder, (read_commit(folder, number) for number in numbers))


def fold(root: Path, commits: Iterable[Commit]) -> Archive:
    """Return the archive of ``commits``, which are in order of their numbers.

    Raises:
        ArchiveError: A range does not begin at the end of the previous one, or a file is outside its commit's ranges.
    """
    vchannels: dict[str, ArchivedVchannel] = {}
    last = 0
    for commit in commits:
        last = commit.number
        files: dict[str, list[ArchivedFile]] = {}
        for file in commit.files:
            _check_file(commit, file)
            files.setdefault(file.vchannel, []).append(file)
        for name, added in commit.ranges.items():
            in_order = sorted(files.get(name, ()), key=lambda file: file.first_tick)
            vchannels[name] = _extended(vchannels.get(name), name, added, in_order)
    return Archive(root, last, vchannels)


def read_commit(root: Path, number: int) -> Commit:
    """Return commit ``number``.

    Raises:
        ArchiveError: The commit is missing or damaged.
    """
    name = _file_name(number)
    try:
        content = read_inside(root, f"{FOLDER}/{name}", MAX_COMMIT_BYTES)
    except FileNotFoundError:
        raise ArchiveError(f"the archive at {root} lacks commit {number}: restore it from a copy") from None
    except PermissionError:
        raise
    except OSError as error:
        raise ArchiveError(f"the commit {name} cannot be read ({error}): restore it from a copy") from error
    commit = Commit.from_json(content.decode(errors="replace"), name)
    if commit.number != number:
        raise ArchiveError(f"the commit {name} has the number {commit.number}: restore it from a copy")
    return commit


def append(root: str | Path, commit: Commit) -> None:
    """Persist ``commit`` under its number.

    Raises:
        ArchiveError: A commit of that number already exists.
    """
    folder = Path(root) / FOLDER
    temporary = folder / f".{uuid.uuid4().hex}"
    final = folder / _file_name(commit.number)
    try:
        with temporary.open("x") as file:
            file.write(commit.to_json())
            file.flush()
            os.fsync(file.fileno())
        # A hard link is created atomically, and never replaces a file.
        final.hardlink_to(temporary)
    except FileExistsError:
        raise ArchiveError(f"the archive at {root} already has commit {commit.number}: run again") from None
    finally:
        temporary.unlink(missing_ok=True)
    sync(folder)


@contextmanager
def writing(root: str | Path) -> Iterator[None]:
    """Hold the exclusive write lock while the block runs. The lock ends with the process, even if it crashes.

    Raises:
        ArchiveError: Another run is writing, or the folder is not empty and is not an archive.
        OptionError: See ``folder_path``.
    """
    folder = folder_path(root) / FOLDER
    # A first run creates this folder before anything else, so an archive whose first run died has it.
    if not folder.is_dir() and (others := entries_of(folder.parent)):
        raise ArchiveError(
            f"{folder.parent} is not empty and is not an archive: it has {others}, but no {FOLDER}. Use an archive, or "
            "an empty or new folder"
        )
    make_folder(folder)
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(f"another run writes to the archive at {root}: wait until it has ended") from None
        # If a run died right after its link, its commit may not be durable yet. Later commits and trims depend on it.
        sync(folder)
        yield


def entries_of(folder: Path) -> str:
    """Return the first names in a folder, as text; empty if the folder is empty or missing."""
    names = sorted(path.name for path in folder.iterdir() if path.name not in _OF_THE_SYSTEM) if folder.is_dir() else []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and sync their names, up to the root of the file system.

    Stops at a folder that this user may not read, because this user did not create the names in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    device = folder.stat().st_dev
    for above in folder.parents:
        if above.stat().st_dev != device:
            # A mount point: its name is not part of this file system.
            return
        try:
            sync(above)
        except PermissionError:
            return


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def vchannel_folder(vchannel: str) -> str:
    """Return the folder of a vchannel's files, relative to the root."""
    channel, index = parts_of(vchannel)
    return f"{DATA}/channel={channel}/vchannel={index}"


def _file_name(number: int) -> str:
    return f"{number:0{_DIGITS}}{_SUFFIX}"


def _numbers(folder: Path) -> Iterator[int]:
    if folder.is_dir():
        for path in folder.iterdir():
            if path.suffix == _SUFFIX and path.stem.isdigit():
                yield int(path.stem)


def _check_values(commit: Commit) -> None:
    """Raise ValueError if a value is invalid: a path selects the file to read, and the manifest may be untrusted."""
    check_numbers(number=commit.number)
    check_texts(_TEXT, "at most 200 printable ASCII characters", run=commit.run, time=commit.time)
    for added in commit.ranges.values():
        check_numbers(**asdict(added))
    for file in commit.files:
        check_path(file.path, file.vchannel, DATA)
        check_numbers(first_tick=file.first_tick, last_tick=file.last_tick, messages=file.messages, bytes=file.bytes)
        check_texts(_DIGEST, "32 hexadecimal digits", digest=file.digest, content_digest=file.content_digest)


def _check_file(commit: Commit, file: ArchivedFile) -> None:
    """Raise ArchiveError if a file is not within the commit's range of its vchannel."""
    added = commit.ranges.get(file.vchannel)
    if added is None or not added.begin_tick <= file.first_tick <= file.last_tick < added.end_tick:
        shown = f"ticks {added.begin_tick} to {added.end_tick - 1}" if added else "empty"
        raise ArchiveError(
            f"commit {commit.number} of the archive has {file.path} with ticks {file.first_tick} to {file.last_tick}, "
            f"but its range of {file.vchannel} is {shown}: restore the archive from a copy"
        )


def _extended(
    known: ArchivedVchannel | None, name: str, added: ArchivedRange, files: Sequence[ArchivedFile]
) -> ArchivedVchannel:
    if known is None:
        return ArchivedVchannel(added.begin_tick, added.end_tick, added.created_tick, tuple(files))
    lost = known.lost
    if added.lost_before:
        lost = (*lost, (known.end_tick, added.lost_before))
    elif added.begin_tick != known.end_tick:
        raise ArchiveError(
            f"a commit of the archive has {name} from tick {added.begin_tick}, but the previous one ended at "
            f"{known.end_tick}: restore the archive from a copy"
        )
    return ArchivedVchannel(known.begin_tick, added.end_tick, added.created_tick, (*known.files, *files), lost)
