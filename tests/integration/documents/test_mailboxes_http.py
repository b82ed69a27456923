"""The examples of docs/guides/mailboxes/http.md work. Method: run them against a server on a free port."""

import asyncio
import shlex
from pathlib import Path

import pytest

from tidelog_testing.documents.examples import examples_of, page, run_example
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.http_calls import requested

PAGE = "mailboxes/http.md"
ENDPOINT = "127.0.0.1:7421"


async def curled(endpoint: str, command: str) -> bytes:
    """Do what a command line of curl does; the tests need no curl."""
    _, *words = shlex.split(command.replace(ENDPOINT, endpoint))
    fields, url, method, headers = [], "", "", {}
    while words:
        word = words.pop(0)
        if word == "-d":
            fields.append(words.pop(0))
        elif word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, value = words.pop(0).split(": ")
            headers[name] = value
        else:
            url = word
    if fields:
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    path = url.removeprefix(f"http://{endpoint}")
    content = "&".join(fields).replace("@", "%40").encode() if fields else None
    answer = await requested(endpoint, method or ("POST" if fields else "GET"), path, content, headers)
    assert answer.status in (200, 201, 204), (command, answer)
    return answer.content


async def test_the_client_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running_server(tmp_path, mailboxes__http_prefix="/pandora") as server:
        await asyncio.to_thread(run_example, PAGE, {ENDPOINT: server.http_endpoint})
    assert capsys.readouterr().out.splitlines() == [
        "['clientTime', 'delay', 'receiver', 'sender', 'to', 'topic']",
        "['ann', 'bob'] ['0']",
        "no data available",
    ]


async def test_the_commands_work(tmp_path: Path) -> None:
    commands = [line for text in examples_of(page(PAGE), "console") for line in text.splitlines()]
    lines = [line for line in commands if line.startswith("curl ")]
    assert len(lines) >= 3
    async with running_server(tmp_path, mailboxes__http_prefix="/pandora") as server:
        for line in lines:
            await curled(server.http_endpoint, line)
