"""The pages of the public names of the client: directives for the site, and text for readers of Markdown.

Sphinx imports the names and takes their docstrings; the same docstrings, under the same headings, are the Markdown.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "docs/reference/api"
# The pages of `tidelog`, by the modules that define its names.
_GROUPS: Final = {
    "client": ("Client, channels and cluster", ("client", "cluster", "handles", "transport")),
    "append": ("Append", ("append",)),
    "read": ("Read", ("read",)),
    "groups": ("Consumer groups", ("groups",)),
    "transactions": ("Transactions", ("txn",)),
    "mailboxes": ("Mailboxes", ("mailboxes",)),
    "administration": ("Channels, broadcasts, tokens: descriptions", ("admin",)),
    "values": ("Messages, batches, ticks and results", ("message", "tick", "types", "wire")),
    "wal": ("WAL accessor", ("wal",)),
    "errors": ("Errors", ("errors",)),
}
_PACKAGES: Final = ("gazette", "msgstream", "pandora", "rocksmq", "spark", "testing", "tracing")
_INDEX: Final = """\
# API

Every public name of the client, by package. `Client` and the other classes without `Async` have the same methods as
their asynchronous twins, without `await`.

{groups}
"""


@dataclass(frozen=True)
class Name:
    """A public name: its package, the module that defines it, and its value."""

    package: str
    name: str
    home: str
    value: Any

    @property
    def full(self) -> str:
        """The name that a user imports."""
        return f"{self.package}.{self.name}"

    @property
    def is_class(self) -> bool:
        """Whether it is a class of its own, and no other name of one."""
        kind = self.value
        return isinstance(kind, type) and kind.__name__ == self.name and kind.__module__.startswith("tidelog")


def names(package: str) -> list[Name]:
    """Return what a package exports, in order of name, except what `tidelog` exports too."""
    module = import_module(package)
    homes = _homes(package)
    exported = [Name(package, name, homes.get(name, package), getattr(module, name)) for name in module.__all__]
    return [each for each in exported if package == "tidelog" or getattr(each.value, "__module__", "") != "tidelog"]


def pages(*, as_text: bool) -> Iterator[tuple[str, str]]:
    """Yield the path and the content of each page, the index first: directives of Sphinx, or text."""
    found = list(_pages())
    groups = "\n\n".join(f"**[{title}]({page}.md)**: {_listed(listed)}" for page, title, listed in found)
    yield f"{FOLDER}/index.md", _INDEX.format(groups=groups)
    for page, title, listed in found:
        is_group = page in _GROUPS
        about = f"`tidelog` exports {_listed(listed)}." if is_group else _markdown(import_module(f"tidelog.{page}"))
        yield f"{FOLDER}/{page}.md", "\n\n".join((f"# {title}", about, *(_block(each, as_text) for each in listed), ""))


def _pages() -> Iterator[tuple[str, str, list[Name]]]:
    """Yield each page with its title and its names."""
    everything = {each.name: each for each in names("tidelog")}
    for page, (title, homes) in _GROUPS.items():
        mine = [each for each in everything.values() if _part(everything, each) in homes]
        yield page, title, mine
    for package in _PACKAGES:
        yield package, f"tidelog.{package}", names(f"tidelog.{package}")


def _part(everything: dict[str, Name], name: Name) -> str:
    """Return the part of `tidelog` that a name belongs to: a synchronous twin is beside its asynchronous class."""
    twin = everything.get(f"Async{name.name}", name)
    is_error = isinstance(twin.value, type) and issubclass(twin.value, Exception)
    return "errors" if is_error else twin.home.split(".")[1]


def _homes(package: str) -> dict[str, str]:
    """Return the module that each name is imported from, by the module that exports it."""
    body = _body("tidelog._public" if package == "tidelog" else package)
    imports = (node for node in body if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}


def _body(module: str) -> list[ast.stmt]:
    file = import_module(module).__file__
    assert file
    return ast.parse(Path(file).read_text()).body


def _listed(listed: list[Name]) -> str:
    return ", ".join(f"`{each.name}`" for each in listed)


def _block(name: Name, as_text: bool) -> str:
    return "\n\n".join((f"## {name.name}", _text(name) if as_text else _directive(name)))


def _directive(name: Name) -> str:
    if name.is_class:
        return f"```{{eval-rst}}\n.. autoclass:: {name.full}\n```"
    if inspect.isroutine(name.value):
        return f"```{{eval-rst}}\n.. autofunction:: {name.full}\n```"
    return f"```{{py:data}} {name.full}\n\n{_about(name)}\n```"


def _text(name: Name) -> str:
    if not name.is_class:
        call = f"\n\n```python\n{_signature(name.full, name.value)}\n```" if inspect.isroutine(name.value) else ""
        return f"{_about(name)}{call}"
    methods = [
        f"```python\n{_signature(each, value)}\n```\n\n{_markdown(value)}"
        for each, value in inspect.getmembers(name.value, inspect.isroutine)
        if not each.startswith("_") and value.__doc__ and str(getattr(value, "__module__", "")).startswith("tidelog")
    ]
    head = f"```python\n{_signature(f'class {name.full}', name.value)}\n```"
    return "\n\n".join((head, _markdown(name.value), *methods))


def _signature(name: str, value: Any) -> str:
    try:
        # A default that is a function is shown with its place in memory, which differs each time.
        return re.sub(r"<function (?:\S+\.)?(\S+) at 0x[0-9a-f]+>", r"\1", f"{name}{inspect.signature(value)}")
    except ValueError:  # A class in C, such as that of an exception, has no signature.
        return name


def _about(name: Name) -> str:
    """Return the docstring of a function, or what follows the assignment of a constant or of an alias of types."""
    if inspect.isroutine(name.value):
        return _markdown(name.value)
    return _about_value(name.name, name.home)


def _about_value(name: str, home: str) -> str:
    body = _body(home)
    for node, after in zip(body, [*body[1:], None], strict=True):
        targets = [*getattr(node, "targets", []), getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            followed = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = str(after.value.value) if followed else ""  # type: ignore[union-attr]  # `followed` says what it is
            return "\n\n".join(filter(None, (f"`{ast.unparse(node)}`", inspect.cleandoc(text).replace("``", "`"))))
    # Imported there too, from the module that has it, or from the standard library.
    further = _homes(home).get(name)
    return _about_value(name, further) if further else f"`{home}.{name}`"


def _markdown(value: Any) -> str:
    """Return a docstring as Markdown. Literal blocks stay indented, which is code there, too."""
    return (inspect.getdoc(value) or "").replace("``", "`").replace("::\n", ":\n")
