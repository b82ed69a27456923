"""The generated code corresponds to proto/, with the pinned compiler.

Method: generate into a temporary folder and compare file by file.
"""

import subprocess
import sys
from pathlib import Path

from tidy.tree import GENERATED, ROOT


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    protos = sorted(path.relative_to(ROOT / "proto").as_posix() for path in ROOT.glob("proto/tidelog/v1/*.proto"))
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "--proto_path=proto", *outputs, *protos]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)

    fresh = {path.name: path.read_bytes() for path in (tmp_path / "tidelog" / "v1").iterdir()}
    committed = {path.name: path.read_bytes() for path in GENERATED.glob("*_pb2*.py*")}

    assert sorted(committed) == sorted(fresh)
    assert [name for name in fresh if committed[name] != fresh[name]] == [], "run `make proto`"
