"""The floods of HTTP/2 frames of ``benchmarks security`` are valid HTTP/2, and consist of the frames that they name."""

import h2.events
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from benchmarks.attacks.http2_frames import FLOODS, PREFACE

SOME_BYTES = 10_000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("http2-frames", {h2.events.RemoteSettingsChanged, h2.events.PingReceived}),
        ("http2-settings", {h2.events.RemoteSettingsChanged}),
        ("http2-settings-unread", {h2.events.RemoteSettingsChanged}),
        ("http2-pings", {h2.events.RemoteSettingsChanged, h2.events.PingReceived}),
        ("http2-pings-unread", {h2.events.RemoteSettingsChanged, h2.events.PingReceived}),
        ("http2-resets", {h2.events.RemoteSettingsChanged, h2.events.RequestReceived, h2.events.StreamReset}),
        ("http2-data", {h2.events.RemoteSettingsChanged, h2.events.RequestReceived, h2.events.DataReceived}),
        # The headers never end, so nothing is received.
        ("http2-continuations", {h2.events.RemoteSettingsChanged}),
        ("http2-window-updates", {h2.events.RemoteSettingsChanged, h2.events.WindowUpdated}),
        ("http2-priorities", {h2.events.RemoteSettingsChanged, h2.events.PriorityUpdated}),
    ],
)
def test_a_flood_is_valid_and_has_the_frames_that_it_names(name: str, expected: set[type]) -> None:
    flood = FLOODS[name][1]()
    # The parser refuses a 65th CONTINUATION.
    some = flood.repeated[: 9 * 32 if name == "http2-continuations" else SOME_BYTES]
    server = H2Connection(H2Configuration(client_side=False))

    events = server.receive_data(PREFACE + (flood.first[:SOME_BYTES] if not some else flood.first + some))

    assert {type(event) for event in events} == expected


def test_floods_of_one_kind_repeat_thousands_of_frames_without_a_bound() -> None:
    settings = FLOODS["http2-settings"][1]()

    assert settings.repeated == bytes.fromhex("000000040000000000") * settings.frames
    assert settings.frames == 8_192
