"""The value of a setting or option with trailing garbage is refused, and not parsed as another value.

Method: valid texts, and the same with any suffix that does not yield another valid text: settings as flags and in a
file; ages, sizes and positions on the command line; options of the Spark source.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tidelog import Retention, Tick
from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import number_of, size_of, time_ms_of
from tidelog_cli.commands.check import _parse_age
from tidelog_cli.exit_codes import CommandError
from tidelog_cli.options.positions import parse_duration, parse_position, parse_start
from tidelog_server.config import ConfigError, load_config
from tidelog_server.config.settings import SECTIONS

SUFFIXES = [",024MiB", " GB/s", ";2", "/s", "MiBx", "_0", ".5.5", "e", "\n", "\0", "\u0661", "x", " 5", "0x"]
suffixes = st.sampled_from(SUFFIXES) | st.text(min_size=1, max_size=6)
NUMBERS = {
    f"{section}.{name}": field.annotation
    for section, model in SECTIONS.items()
    for name, field in model.model_fields.items()
    if field.annotation in (int, float) or "Bytes" in str(field.metadata) or name.endswith(("_bytes", "_bytes_per_s"))
}
SIZES = sorted(key for key in NUMBERS if key.endswith(("_bytes", "_bytes_per_s")))
WHOLE = sorted(key for key, kind in NUMBERS.items() if kind is int)
FLOATS = sorted(key for key, kind in NUMBERS.items() if kind is float)
VALID_SIZE = re.compile(r"[0-9]+( ?([kmgtpe]i?)?b)?|[0-9]+\.[0-9]+ ?[kmgtpe]i?b", re.ASCII | re.IGNORECASE)


def refused(**flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {}, {name.replace("__", "."): value for name, value in flags.items()})
    return str(caught.value)


def test_there_are_settings_of_each_kind() -> None:
    assert len(SIZES) >= 8
    assert len(WHOLE) >= 10
    assert FLOATS


@given(st.sampled_from(SIZES), suffixes)
@example("limits.min_free_disk_bytes", ",024MiB")
@example("quota.in_bytes_per_s", ",000,000")
@example("limits.min_free_disk_bytes", " GB/s")
@example("limits.min_free_disk_bytes", ".5")
def test_a_size_with_garbage_behind_it_is_refused(key: str, suffix: str) -> None:
    assume(not VALID_SIZE.fullmatch(f"5{suffix}"))
    assert refused(**{key.replace(".", "__"): f"5{suffix}"}).startswith(f"{key} = ")


@given(st.sampled_from(WHOLE), suffixes)
def test_a_whole_number_with_garbage_behind_it_is_refused(key: str, suffix: str) -> None:
    assume(not re.fullmatch("[0-9]+", suffix, re.ASCII))
    assert f"{key} = " in refused(**{key.replace(".", "__"): f"5{suffix}"})


@given(st.sampled_from(FLOATS), suffixes)
@example(FLOATS[0], "_0")
@example(FLOATS[0], "\n")
@example(FLOATS[0], "\u0661")
def test_a_number_with_garbage_behind_it_is_refused(key: str, suffix: str) -> None:
    assume(not re.fullmatch(r"[0-9]*(\.[0-9]*)?(e[+-]?[0-9]+)?", suffix, re.ASCII | re.IGNORECASE))
    assert f"{key} = " in refused(**{key.replace(".", "__"): f"5{suffix}"})


@pytest.mark.parametrize("key", [*WHOLE, *SIZES])
@pytest.mark.parametrize("value", ["true", "1.0", '" 1"', "[1]"])
def test_in_a_file_a_number_is_a_number(key: str, value: str, tmp_path: Path) -> None:
    section, name = key.split(".")
    path = tmp_path / "tidelog.toml"
    path.write_text(f"[{section}]\n{name} = {value}\n")
    with pytest.raises(ConfigError, match=re.escape(key)):
        load_config(path, {}, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4_096), ("64MiB", 64 << 20), ("1.5GiB", 3 << 29), ("2 KB", 2_000), ("1gib", 1 << 30)],
)
def test_sizes_are_numbers_with_or_without_a_unit(text: str, expected: int) -> None:
    assert load_config(None, {}, {"quota.in_bytes_per_s": text}).quota.in_bytes_per_s == expected


@pytest.mark.parametrize("value", ["", " ", "\t", "a\0b"])
def test_a_data_folder_has_a_name(value: str, tmp_path: Path) -> None:
    assert "expected a path" in refused(storage__data_dir=value)
    path = tmp_path / "tidelog.toml"
    path.write_text('[storage]\ndata_dir = ""\n')
    with pytest.raises(ConfigError, match=r"storage\.data_dir"):
        load_config(path, {}, {})
    assert load_config(None, {}, {"storage.data_dir": "."}).storage.data_dir == Path()


@pytest.mark.parametrize(
    ("parse", "good", "error"),
    [
        (parse_duration, "1h30m", CommandError),
        (lambda text: parse_position(f"@-{text}"), "90s", CommandError),
        (lambda text: parse_start(f"-{text}"), "90s", CommandError),
        (lambda text: Retention.of(age=text), "3d", ValueError),
        (_parse_age, "26h", ValueError),
    ],
    ids=["duration", "position", "start", "retention", "check"],
)
@given(suffix=suffixes)
@example(suffix="9" * 400 + "d")
def test_a_duration_with_garbage_behind_it_is_refused(
    parse: Callable[[str], object], good: str, error: type[Exception], suffix: str
) -> None:
    assume(not re.fullmatch(r"([0-9]+(\.[0-9]+)?(ms|s|m|h|d))*", good + suffix, re.ASCII) or len(suffix) > 300)
    parse(good)
    with pytest.raises(error):
        parse(good + suffix)


@pytest.mark.parametrize("text", ["nanh", "infd", "-5h", "1_0h", "1e9d", "h", "5", "\u0665h"])
def test_an_age_of_a_check_is_a_number_with_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match="--max-age"):
        _parse_age(text)
    assert _parse_age("1.5h") == timedelta(hours=1.5).total_seconds()


@given(suffixes)
@example(".5")
@example("9" * 5_000)
def test_a_size_of_retention_with_garbage_behind_it_is_refused(suffix: str) -> None:
    text = f"5{suffix}"
    assume(not re.fullmatch(r"\s*[0-9]{1,20}(\.[0-9]{1,20}\s*[kmgt]i?b?|\s*[kmgt]i?b?|\s*b?)\s*", text, re.I | re.A))
    with pytest.raises(ValueError, match="size"):
        Retention.of(bytes=text)


@given(suffixes)
@example("9" * 5_000)
def test_options_of_spark_with_garbage_behind_them_are_refused(suffix: str) -> None:
    assume(not re.fullmatch(r"[0-9]{0,14}\s*[kmgt]?(i?b)?", suffix, re.A | re.I))
    with pytest.raises(OptionError):
        size_of({"size": f"5{suffix}"}, "size", 1)
    with pytest.raises(OptionError):
        number_of({"number": f"5{suffix}"}, "number", 1, 0, 100)
    with pytest.raises(OptionError):
        time_ms_of("time", f"5{suffix}")


@pytest.mark.parametrize("good", ["5", "2026-01-31T09:30:00.250Z", "2026-01-31T09:30:00.250Z+7"])
@given(suffix=suffixes)
@example(suffix="Z")
def test_a_tick_with_garbage_behind_it_is_refused(good: str, suffix: str) -> None:
    assume(not re.fullmatch(r"\+?[0-9]+", suffix, re.ASCII))
    Tick.parse(good)
    with pytest.raises(ValueError, match="tick"):
        Tick.parse(good + suffix)
