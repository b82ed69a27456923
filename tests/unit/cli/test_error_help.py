"""An error is explained by its name, and names its section. Method: each error that `tidelog` exports."""

import traceback

import pytest

import tidelog
from tidelog.gazette import GazetteError
from tidelog_cli.entry import main
from tidelog_cli.exit_codes import CommandError
from tidelog_cli.output.error_help import text_about
from tidelog_testing.documents.exports import exported_names

ERRORS = [name for name in exported_names(tidelog) if name.endswith("Error")]


@pytest.mark.parametrize("name", ERRORS)
def test_a_class_and_each_of_its_reasons_are_explained(name: str) -> None:
    kind = getattr(tidelog, name)
    text = text_about(name)
    assert text.startswith(f"{name}\n\n")
    assert text.endswith(f"Section: docs/reference/errors.md#{name.lower()}")
    assert {text_about(reason.removeprefix("REASON_")) for reason in kind.reasons} <= {text}
    assert {text_about(reason) for reason in kind.reasons} <= {text}


def test_an_unknown_name_has_no_help() -> None:
    with pytest.raises(CommandError, match="there is no command and no error 'Qqq': errors are named as in"):
        text_about("Qqq")
    with pytest.raises(CommandError, match=r"did you mean ChannelNotFoundError\b"):
        text_about("ChannelNotFound")
    assert text_about("channel_not_exist") == text_about("channelnotfounderror") == text_about("CHANNEL_NOT_EXIST")


def test_a_traceback_ends_with_the_section_and_the_text_of_the_error_is_unchanged() -> None:
    error = tidelog.ChannelNotFoundError("orders does not exist")
    assert str(error) == "orders does not exist"
    *_, last = traceback.format_exception(error)
    assert last == "see docs/reference/errors.md#channelnotfounderror\n"


def test_an_error_of_another_package_names_the_section_of_its_parent() -> None:
    documented = [kind.__name__.lower() for kind in GazetteError.__mro__ if kind.__name__ in ERRORS]
    assert GazetteError.page.partition("#")[2] == documented[0]


def test_help_of_an_error_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help", "CHANNEL_NOT_EXIST"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("ChannelNotFoundError\n")
