"""Contexts: servers and their credentials under names, in one file that the command line writes and all clients read.

The file is ``contexts.json`` in the folder ``TIDELOG_CONFIG_HOME``, else ``tidelog`` in ``XDG_CONFIG_HOME``, else in
``~/.config``. It may have tokens, so it must belong to the user, with mode 0600. Each change replaces it as a whole.
"""

import fcntl
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

MAX_CONTEXTS: Final = 1_000
MAX_FILE_BYTES: Final = 1 << 20
PREVIOUS: Final = "-"
"""Stands for the context that was selected before the present one."""

_VERSION: Final = 1
_FILE: Final = "contexts.json"
_LOCK: Final = "contexts.lock"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_ADD: Final = "add one with `tidelog ctx add`"


class ContextError(ValueError):
    """A context does not exist, its name is invalid, or the file of contexts cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Credentials for a server; each is empty if it is not set.

    Attributes:
        token, token_file: Access token, or the file that has it.
        tls_ca, tls_cert, tls_key: Files.
    """

    token: str = field(default="", repr=False)
    token_file: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""


@dataclass(frozen=True, slots=True)
class Context(Credentials):
    """A server, or the nodes of a cluster, and credentials.

    Attributes:
        endpoint: ``host:port``, several separated by commas, or a URL.
    """

    endpoint: str


_FIELDS: Final = ("endpoint", *(each.name for each in fields(Credentials)))


@dataclass(frozen=True, slots=True)
class Contexts:
    """The content of the file.

    Attributes:
        by_name: The contexts.
        current: Name of the selected one; empty if no context is selected.
        previous: Name of the one that was selected before; empty without one.
    """

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str = ""
    previous: str = ""

    def chosen(self, name: str) -> str:
        """Return ``name`` as ``name_of``; the selected one if it is empty. Raises ContextError, also without one."""
        if not (name or self.current):
            raise ContextError("no context is selected: name one, or select one with `tidelog ctx use NAME`")
        return self.name_of(name) if name else self.current

    def name_of(self, name: str) -> str:
        """Return ``name``, or the name for which ``-`` stands, if there is such a context.

        Raises:
            ContextError: There is no such context.
        """
        if name == PREVIOUS:
            if not self.previous:
                raise ContextError("there is no previous context: select one by its name with `tidelog ctx use NAME`")
            return self.previous
        check_name(name)
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)[:20])
            raise ContextError(f"there is no context '{name}': " + (f"expected one of {known}" if known else _ADD))
        return name

    def used(self, name: str) -> "Contexts":
        """Return the contexts with ``name``, or ``-``, as the selected one. Raises ContextError as ``name_of``."""
        chosen = self.name_of(name)
        if chosen == self.current:
            return self
        return Contexts(self.by_name, chosen, self.current)

    def added(self, name: str, context: Context, *, replace: bool) -> "Contexts":
        """Return the contexts with one more.

        Raises:
            ContextError: The name is invalid or taken, or there are ``MAX_CONTEXTS`` of them.
        """
        check_name(name)
        if name in self.by_name and not replace:
            raise ContextError(f"there is a context '{name}' already: pass --replace to change it")
        if name not in self.by_name and len(self.by_name) >= MAX_CONTEXTS:
            raise ContextError(f"there are {MAX_CONTEXTS} contexts, the maximum: remove some with `tidelog ctx rm`")
        return Contexts({**self.by_name, name: context}, self.current, self.previous)

    def removed(self, name: str) -> "Contexts":
        """Return the contexts without one. Raises ContextError as ``name_of``."""
        gone = self.name_of(name)
        left = {each: context for each, context in self.by_name.items() if each != gone}
        return Contexts(left, *("" if each == gone else each for each in (self.current, self.previous)))


def check_name(name: str) -> None:
    """Raise ContextError unless ``name`` may be that of a context."""
    if not _NAME.fullmatch(name):
        raise ContextError(
            f"the name of a context is {name!r}: expected 1 to 64 letters, digits, dots, underscores and hyphens, the "
            "first a letter or digit"
        )


def folder_of(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the file; None if the variables name none and there is no home folder. Pure."""
    if own := environment.get("TIDELOG_CONFIG_HOME"):
        return Path(own)
    shared = environment.get("XDG_CONFIG_HOME", "")
    # The specification of these folders: a relative path is invalid and must be ignored.
    if os.path.isabs(shared):
        return Path(shared, "tidelog")
    home = environment.get("HOME")
    return Path(home, ".config", "tidelog") if home else None


class ContextFile:
    """The file of contexts."""

    def __init__(self, folder: Path | None) -> None:
        """Do no I/O. None for a process without a home folder: it has no contexts and can add none."""
        self._folder = folder

    @property
    def path(self) -> Path:
        """The file. Raises ContextError without a folder."""
        if self._folder is None:
            raise ContextError("there is no folder for contexts: set HOME or TIDELOG_CONFIG_HOME")
        return self._folder / _FILE

    def read(self) -> Contexts:
        """Return the contexts; none if there is no file.

        Raises:
            ContextError: The file cannot be read, others may read or have made it, or its content is not that of one.
        """
        if self._folder is None:
            return Contexts()
        try:
            content = _private_content(self.path)
        except FileNotFoundError:
            return Contexts()
        except OSError as error:
            raise ContextError(f"cannot read {self.path}: {error.strerror or error}") from error
        return _decoded(content, self.path)

    @contextmanager
    def changed(self) -> Iterator[list[Contexts]]:
        """Yield a list with the contexts, and replace the file by what is in it at the end of the block.

        Another process that changes them waits meanwhile. After a crash the file is the old or the new one.

        Raises:
            ContextError: As ``read``, or the file cannot be written.
        """
        path = self.path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path.parent / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ContextError(f"cannot write {path}: {error.strerror or error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = [self.read()]
            before = held[0]
            yield held
            if held[0] != before:
                self._replace(held[0])
        finally:
            # Also releases the lock.
            os.close(lock)

    def _replace(self, contexts: Contexts) -> None:
        content = _encoded(contexts)
        if len(content) > MAX_FILE_BYTES:
            raise ContextError(f"the contexts take {len(content)} bytes, more than {MAX_FILE_BYTES}: remove some")
        # A link, as of a folder with the settings of several machines, stays one.
        path = Path(os.path.realpath(self.path))
        try:
            # Its mode is 0600 from the start.
            descriptor, new = tempfile.mkstemp(prefix=_FILE, dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(new, path)
            except BaseException:
                os.unlink(new)
                raise
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ContextError(f"cannot write {path}: {error.strerror or error}") from error


def _private_content(path: Path) -> bytes:
    # Without O_NONBLOCK, opening a pipe of that name would wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_private(os.fstat(descriptor), path)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE_BYTES:
        raise ContextError(f"{path} has more than {MAX_FILE_BYTES} bytes: it is not a file of contexts")
    return content


def _check_private(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ContextError(f"{path} is not a file: remove it, and add contexts with `tidelog ctx add`")
    if found.st_uid not in (os.geteuid(), 0):
        # It decides where tokens and messages are sent.
        raise ContextError(f"{path} belongs to the user with id {found.st_uid}, expected yours: remove it")
    if found.st_mode & _OTHERS:
        raise ContextError(
            f"{path} has mode {stat.S_IMODE(found.st_mode):04o}, so other users may read or change the tokens in it: "
            f"run `chmod 600 {path}`, and replace the tokens if others may have read them"
        )


def _encoded(contexts: Contexts) -> bytes:
    content = {
        "version": _VERSION,
        "current": contexts.current,
        "previous": contexts.previous,
        "contexts": {
            name: {key: value for key in _FIELDS if (value := getattr(context, key))}
            for name, context in sorted(contexts.by_name.items())
        },
    }
    return json.dumps(content, indent=2).encode() + b"\n"


def _decoded(content: bytes, path: Path) -> Contexts:
    def wrong(what: str) -> ContextError:
        return ContextError(f"{path} {what}: correct it, or remove it and add the contexts again")

    try:
        read: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise wrong("is not JSON") from error
    if not isinstance(read, dict) or not isinstance(read.get("contexts"), dict):
        raise wrong("has no object 'contexts'")
    if read.get("version") != _VERSION:
        raise ContextError(
            f"{path} has version {read.get('version')!r}, expected {_VERSION}: a later version of Tidelog wrote it"
        )
    contexts = {}
    for name, values in read["contexts"].items():
        check_name(name)
        if (what := _what_is_wrong(values)) is not None:
            raise wrong(f"has a context '{name}' {what}")
        contexts[name] = Context(**values)
    named = [read.get(key, "") for key in ("current", "previous")]
    for name in named:
        if name != "" and name not in contexts:
            raise wrong(f"selects {name!r}, which does not exist")
    return Contexts(contexts, *named)


def _what_is_wrong(values: Any) -> str | None:
    """Return what is wrong with a context in the file; None if it is valid. Never with a value: it may be a token."""
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        return "that is not an object of texts"
    if unknown := sorted(set(values) - set(_FIELDS)):
        return f"with {unknown[0]!r}, expected some of {', '.join(_FIELDS)}"
    return None if values.get("endpoint") else "without endpoint"
