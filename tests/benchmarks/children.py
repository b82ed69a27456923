"""Child processes of a benchmark, because an interpreter uses only one core."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager


async def start_child(module: str, order: Mapping[str, object]) -> asyncio.subprocess.Process:
    """Start ``python -m module`` with ``order`` as a JSON argument; its standard input and output are pipes."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, json.dumps(order), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


@asynccontextmanager
async def child_process(module: str, order: Mapping[str, object]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a child process, which is killed at the end unless it has ended."""
    process = await start_child(module, order)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> bytes:
    """Return the next line of a child's output. Raises RuntimeError if it has ended."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process of the benchmark ended early, with exit code {await process.wait()}")
    return line
