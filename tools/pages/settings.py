"""The page of all settings of the server, from the models that check them."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from tidelog_server.config import RELOADABLE, SettingDescription, describe_settings
from tidelog_server.config.schema import text_of_section
from tidelog_server.config.settings import SECTIONS

PAGE: Final = "docs/reference/settings.md"
_HEAD: Final = """\
# Settings

Each setting of the server, with its default. It has one name in three spellings: `durability` under `[storage]` in the
file, `TIDELOG_STORAGE__DURABILITY` in the environment, `--storage.durability` as an option of `tidelog serve`.

The origins, the weakest first: the built-in default, the file of `--config`, the environment, the command line.
`tidelog config show` prints each setting with its value and its origin, `tidelog config validate` checks them without
starting a server, and `tidelog config schema` prints their JSON Schema for
[editors](../operate/operations.md#configuration). A setting that is reloadable takes effect at SIGHUP; the others need
a restart. Sizes are bytes, or have a unit such as `64MiB`.
"""


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of the page."""
    parts = [_HEAD]
    for section, settings in groupby(describe_settings(), lambda each: each.key.partition(".")[0]):
        about = _sentence(text_of_section(SECTIONS[section]))
        parts += [f"## `[{section}]`\n\n{about}\n", *map(_entry, settings)]
    yield PAGE, "\n".join(parts)


def _entry(setting: SettingDescription) -> str:
    reloadable = "yes, at SIGHUP" if setting.key in RELOADABLE else "no"
    variable = f"TIDELOG_{setting.key.replace('.', '__').upper()}"
    return (
        f"```{{confval}} {setting.key}\n:default: `{setting.default}`\n\n"
        f"{_sentence(setting.text)}\n\nEnvironment: `{variable}`. Reloadable: {reloadable}.\n```\n"
    )


def _sentence(text: str) -> str:
    """Return a text with a capital letter at its begin, unless its first word has one, and a full stop at its end."""
    is_plain = text.partition(" ")[0].islower()
    return f"{text[:1].upper() if is_plain else text[:1]}{text[1:].removesuffix('.')}."
