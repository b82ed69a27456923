"""Texts name commands that exist: each `tidelog ...` is a command of the program, with options that it has.

Method: the string literals of the client and the server, with NAME for each value of an f-string, and the Markdown
files, against the tree of commands and the settings; the checker itself, on planted commands. The extras of
`pip install` are compared with those of the package.
"""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
import typer

from tidelog_cli.root import app
from tidelog_server.commands.config_flags import TAKES_SETTINGS
from tidelog_server.config.layers import KEYS
from tidy.tree import ROOT, files, parsed, python_files, shown

PROGRAM: Final[Any] = typer.main.get_command(app)
# What ends a command in a shell.
ENDS: Final = frozenset(("|", "||", "&", "&&", ">", ">>", "<", "2>&1", "\\"))
SPAN: Final = re.compile(r"(?<!`)(`{1,2})(?!`)\s*(tidelog\s.+?)\s*\1(?!`)", re.DOTALL)
LINE: Final = re.compile(r"^(?:\$ )?(tidelog [a-z-].*)$", re.MULTILINE)
INSTALL: Final = re.compile(r"""pip install (?:--quiet )?["']?[^"'`\s]*\[([a-z,]+)\]""")
# The content of the file FORMAT in a data folder, in a view of a log, and in a folder of backups.
FORMATS: Final = ("tidelog data format ", "tidelog view format ", "tidelog backups format ")
EXTRAS: Final = frozenset(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
# Pages that state what was: they name commands of their time.
HISTORY: Final = (ROOT / "CHANGELOG.md", ROOT / "docs" / "decisions")


def literals(tree: ast.Module) -> Iterator[str]:
    """Yield the string literals of a module, each f-string as one."""
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {part for node in strings for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(value_of(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.value


def value_of(part: ast.expr) -> str:
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "NAME"


def commands_in(text: str) -> Iterator[str]:
    """Yield the commands between backticks, and those that are a line, as in a block of code."""
    for command in (*(span for _, span in SPAN.findall(text)), *LINE.findall(text)):
        if not command.startswith(FORMATS):
            yield command


def problem_of(text: str) -> str | None:
    """Return what is wrong with a command, such as ``tidelog scan sensors``; None if it and its options exist.

    A word in capitals stands for any command or value. ``tidelog help`` is followed by a command, or by an error.
    """
    command, given = PROGRAM, shlex.split(text, comments=True)[1:]
    words = iter(given[1:] if given[:1] == ["help"] else given)
    for word in words:
        if word in ENDS or word == "--" or (hasattr(command, "commands") and word.isupper()):
            return None
        if word.startswith("-") and word != "-":
            name = word.partition("=")[0]
            options = [each for each in command.params if name in (*each.opts, *each.secondary_opts)]
            takes = TAKES_SETTINGS.items() <= command.context_settings.items()
            is_setting = name[2:] in KEYS and (takes or command.name == "config")
            if not options and not is_setting and name not in ("-h", "--help"):
                return f"{command.name} has no option {name}"
            if "=" not in word and (is_setting or any(not each.is_flag for each in options)):
                next(words, None)
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return f"{command.name} has no command {word}"
            command = command.commands[word]
    return None


def wrong_in(text: str) -> Iterator[str]:
    """Yield what is wrong with the commands and the extras that a text names."""
    for command in commands_in(text):
        if problem := problem_of(command):
            yield f"`{command}`: {problem}"
    for extras in INSTALL.findall(text):
        yield from (f"there is no extra {extra}" for extra in extras.split(",") if extra not in EXTRAS)


def wrong_in_files(texts: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {wrong}" for name, text in texts for wrong in wrong_in(text)]


def test_texts_of_the_client_and_the_server_name_commands_that_exist() -> None:
    sources = [path for path in python_files() if path.relative_to(ROOT).parts[0] in ("client", "server")]
    assert wrong_in_files((shown(path), text) for path in sources for text in literals(parsed(path))) == []


def test_documents_name_commands_that_exist() -> None:
    pages = [path for path in files(".md") if not any(path.is_relative_to(history) for history in HISTORY)]
    assert wrong_in_files((shown(path), path.read_text()) for path in pages) == []


def test_what_is_absent_is_reported_with_the_command_that_creates_it() -> None:
    errors = ROOT / "server" / "tidelog_server" / "core" / "errors"
    texts = [text for name in ("__init__.py", "groups.py", "mailboxes.py") for text in literals(parsed(errors / name))]
    named = {command for text in texts for command in commands_in(text)}
    assert {"tidelog channel create NAME", "tidelog group create NAME", "tidelog mailbox create NAME"} <= named


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("run `tidelog chnl create x`", "`tidelog chnl create x`: tidelog has no command chnl"),
        ("run `tidelog channel make x`", "`tidelog channel make x`: channel has no command make"),
        ("run ``tidelog scan x --limits 3``", "`tidelog scan x --limits 3`: scan has no option --limits"),
        ("$ tidelog serve --storage.data_dirs x", "`tidelog serve --storage.data_dirs x`: serve has no option "
         "--storage.data_dirs"),
        ("$ tidelog scan x --log.level info", "`tidelog scan x --log.level info`: scan has no option --log.level"),
        ("run `pip install '.[severs]'`", "there is no extra severs"),
    ],
)  # fmt: skip
def test_a_command_that_does_not_exist_is_found(text: str, problem: str) -> None:
    assert list(wrong_in(text)) == [problem]


@pytest.mark.parametrize(
    "text",
    [
        "create it with `tidelog channel create sensors`",
        "`tidelog scan sensors --from -1h30m -n 3 | grep -- --no-such`",
        "$ tidelog serve --storage.data_dir x --log.level=warning &",
        "`tidelog --token-file t scan x`",
        "`tidelog COMMAND --help`, `tidelog mailbox create -- -x`, `tidelog_cli none`",
        "run `pip install '.[server,otel]'`",
    ],
)
def test_commands_that_exist_are_accepted(text: str) -> None:
    assert list(wrong_in(text)) == []
