"""``serve --tls-self`` and ``--dev``: which files and settings they name, and when they refuse.

Method: the functions that change the flags, on temporary folders.
"""

import socket
from pathlib import Path

import pytest

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.commands.development import (
    Development,
    authority_of,
    export_lines,
    flags_for_development,
    flags_with_certificate,
    names_of,
    remains_of,
)
from tidelog_server.config import load_config


def of(folder: Path, **flags: str) -> dict[str, str]:
    return {
        "storage.data_dir": str(folder / "data"),
        **{name.replace("__", "."): value for name, value in flags.items()},
    }


def test_the_files_are_next_to_the_data_folder_and_are_kept(tmp_path: Path) -> None:
    flags = flags_with_certificate(None, {}, of(tmp_path, log__level="error"))
    folder = tmp_path / "data-tls"
    assert flags == of(tmp_path, log__level="error") | {
        "tls.cert": str(folder / "server.pem"), "tls.key": str(folder / "server.key"),
    }  # fmt: skip
    before = (folder / "server.pem").read_bytes()
    assert flags_with_certificate(None, {}, of(tmp_path, log__level="error")) == flags
    assert (folder / "server.pem").read_bytes() == before
    assert authority_of(load_config(None, {}, flags)) == folder / "authority.pem"
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("data_dir", [".", "..", "a/../b/", "link"])
def test_any_data_folder_has_a_folder_next_to_it(
    tmp_path: Path, data_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "here"
    home.mkdir(parents=True)
    (home / "link").symlink_to(tmp_path)
    monkeypatch.chdir(home)
    flags = flags_with_certificate(None, {}, {"storage.data_dir": data_dir})
    assert Path(flags["tls.cert"]).parent.parent in (home, home.parent, tmp_path)
    assert Path(flags["tls.cert"]).is_file()


def test_names_are_those_of_this_machine_and_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    exposed = {"server.host": "0.0.0.0", "server.http_host": "192.0.2.7", "server.insecure": "true"}
    local = ["localhost", "127.0.0.1", "::1"]
    monkeypatch.setattr(socket, "gethostname", lambda: "desk")
    assert names_of(load_config(None, {}, {})) == [*local, "desk"]
    assert names_of(load_config(None, {}, exposed)) == [*local, "desk", "192.0.2.7"]
    for name in ("b\xfcro", "", "localhost"):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        assert names_of(load_config(None, {}, {})) == local


def test_it_is_refused_together_with_files_of_tls(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text('[tls]\ncert = "a.pem"\nkey = "a.key"\n')
    for path, environ, flags, told in (
        (file, {}, {}, f"{file}:2"), (None, {"TIDELOG_TLS__KEY": "a.key"}, {}, "environment TIDELOG_TLS__KEY"),
        (None, {}, {"tls.client_ca": "ca.pem"}, "flag --tls.client_ca"),
        (None, {}, {"tls.deny_list": "denied"}, "flag --tls.deny_list"),
    ):  # fmt: skip
        with pytest.raises(CommandError, match="use one of them") as refused:
            flags_with_certificate(path, environ, of(tmp_path) | flags)
        assert told in str(refused.value)
        assert refused.value.code == ExitCode.BAD_CONFIG
    # What is set to nothing is not set.
    flags_with_certificate(None, {"TIDELOG_TLS__CERT": ""}, of(tmp_path) | {"tls.key": "none"})


def test_it_is_refused_for_nodes_and_with_an_invalid_configuration(tmp_path: Path) -> None:
    node = {"metadata.kind": "etcd", "metadata.etcd_endpoints": "127.0.0.1:1", "cluster.node_id": "a"}
    for flags, told in (
        (node, "a single server"),
        ({"server.grpc_port": "x"}, "server.grpc_port"),
        ({"a.b": "c"}, "a.b"),
    ):
        with pytest.raises(CommandError, match=told) as refused:
            flags_with_certificate(None, {}, of(tmp_path) | flags)
        assert refused.value.code == ExitCode.BAD_CONFIG
    assert not (tmp_path / "data-tls").exists()


def test_a_folder_that_another_user_could_have_made_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data-tls"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(CommandError, match="others may know the keys") as refused:
        flags_with_certificate(None, {}, of(tmp_path))
    assert refused.value.code == ExitCode.NO_PERMISSION
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CommandError, match="others may know the keys"):
        flags_with_certificate(None, {}, of(tmp_path))
    folder.unlink()
    folder.write_text("")
    with pytest.raises(CommandError, match="others may know the keys"):
        flags_with_certificate(None, {}, of(tmp_path))


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError) as refused:
        flags_with_certificate(None, {}, {"storage.data_dir": str(tmp_path / "file" / "data")})
    assert refused.value.code == ExitCode.DATA_DIR_UNUSABLE


def test_the_lines_for_a_shell_are_quoted(tmp_path: Path) -> None:
    secured = Development(Path("/a b/authority.pem"))
    assert export_lines(secured.variables("127.0.0.1:7420", "127.0.0.1:7421", tmp_path)).splitlines() == [
        "export TIDELOG_ENDPOINT=127.0.0.1:7420", "export TIDELOG_TLS_CA='/a b/authority.pem'",
    ]  # fmt: skip
    for host in ("0.0.0.0", "[::]"):
        variables = Development(remains="x").variables(f"{host}:1", f"{host}:2", tmp_path)
        assert variables == {"TIDELOG_ENDPOINT": "localhost:1", "TIDELOG_HTTP_ENDPOINT": "localhost:2"}
    assert Development().variables("127.0.0.1:7420", "127.0.0.1:7421", tmp_path) == {}


def test_what_a_layer_sets_counts_instead_of_the_settings_for_development(tmp_path: Path) -> None:
    defaults = {
        "server.grpc_port": "0", "server.http_port": "0", "storage.kind": "memory",
        "storage.data_dir": str(tmp_path / "data"),
    }  # fmt: skip
    file = tmp_path / "tidelog.toml"
    file.write_text("[server]\ngrpc_port = 7520\n")
    assert flags_for_development(None, {}, {}, tmp_path) == defaults
    of_file = flags_for_development(file, {"TIDELOG_STORAGE__KIND": "rocksdb"}, {"log.level": "error"}, tmp_path)
    assert of_file == {"server.http_port": "0", "storage.data_dir": str(tmp_path / "data"), "log.level": "error"}
    kept = flags_for_development(None, {}, {"storage.data_dir": "kept"}, tmp_path)
    assert kept == {"server.grpc_port": "0", "server.http_port": "0", "storage.data_dir": "kept"}
    with pytest.raises(CommandError, match=r"a\.b") as refused:
        flags_for_development(None, {}, {"a.b": "c"}, tmp_path)
    assert refused.value.code == ExitCode.BAD_CONFIG


def test_what_remains_is_stated(tmp_path: Path) -> None:
    for flags, told in (
        ({}, "All data is in memory, and is gone when the server stops."),
        ({"storage.kind": "rocksdb"}, f"All data is in {tmp_path}, which is deleted when the server stops."),
        ({"storage.data_dir": "kept"}, "The data stays in kept when the server stops."),
    ):
        config = load_config(None, {}, flags_for_development(None, {}, flags, tmp_path))
        assert remains_of(config, tmp_path) == told
