"""What the generators share: the schema as it is described, and modules that are formatted as hand-written ones."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from google.protobuf import descriptor_pb2

ROOT: Final = Path(__file__).resolve().parents[1]


def described(*names: str) -> list[descriptor_pb2.FileDescriptorProto]:
    """Return the descriptions of files of ``proto/``, in order, with their comments and all options."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "described.binpb"
        options = ["--proto_path=proto", "--include_source_info", "--retain_options", f"--descriptor_set_out={path}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *names], cwd=ROOT, check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
    return sorted((each for each in files if each.name in names), key=lambda each: names.index(each.name))


def write_modules(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write modules below ``folder``, by their full names, with sorted imports and formatted; return their paths."""
    paths = []
    for name, text in texts.items():
        path = folder / Path(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(path)
    options = ["--config", str(ROOT / "pyproject.toml"), "--quiet", *map(str, paths)]
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--select", "I,UP034", "--fix-only", *options], check=True)
    subprocess.run([*ruff, "format", *options], check=True)
    return paths
