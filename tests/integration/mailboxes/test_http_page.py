"""The page of mailboxes, in Chromium: lists, sends, shows bodies and re-enqueues; and what other sites cannot do.

Method: a real server and Debian's Chromium. A violation of the page's policy that the browser reports fails a test.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs

from aiohttp import web
from playwright.async_api import Page, expect

from tidelog.pandora import AckStatus, AsyncHttpClient
from tidelog_server.app import Server
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.http_calls import requested
from tidelog_testing.servers.browser import browser
from tidelog_testing.servers.secured import secured_server

FIRST = {"sender": "a@local", "receiver": "b@remote", "topic": "text"}


@asynccontextmanager
async def shown(folder: Path, **options: object) -> AsyncIterator[tuple[Server, Page, str]]:
    """Yield a server, a page of a browser with ``options``, and the URL of the page of mailboxes."""
    running = running_server(folder / "data", mailboxes__http_prefix="/pandora")
    async with running as server, browser(**options) as context:
        page = await context.new_page()
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if "Refused" in message.text else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        yield server, page, f"http://{server.http_endpoint}/pandora/"
        assert problems == []


async def post(server: Server, path: str, form: dict[str, str]) -> int:
    return (await requested(server.http_endpoint, "POST", f"/pandora{path}", form)).status


async def test_a_message_is_sent_with_extra_fields_and_its_body_is_shown(tmp_path: Path) -> None:
    async with shown(tmp_path) as (_, page, url):
        await page.goto(url)
        assert await page.title() == "Mailboxes"
        assert await page.get_by_label("Received at").input_value() == "-24h"
        await page.get_by_label("To", exact=True).fill("b@remote")
        await page.get_by_label("From").fill("a@local")
        await page.get_by_label("Topic").fill("<script>alert(1)</script>")
        for number, (name, value) in enumerate([("info", "one & two"), ("info", "ümlaut")], 1):
            await page.get_by_role("button", name="Add field").click()
            await page.get_by_label(f"Field {number}").fill(name)
            await page.get_by_label(f"Value {number}").fill(value)
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("status")).to_contain_text("Sent: ")
        mid = (await page.get_by_role("status").inner_text()).removeprefix("Sent: ")
        row = page.get_by_role("row").nth(1)
        await expect(row).to_contain_text("<script>alert(1)</script>")
        await expect(row).to_contain_text("notDelivered")
        await page.reload()
        await expect(page.get_by_role("row")).to_have_count(2)
        await page.get_by_role("link", name=mid).click()
        body = parse_qs(await page.locator("body").inner_text())
        assert body["info"] == ["one & two", "ümlaut"]
        assert (body["sender"], body["receiver"]) == (["a@local"], ["b@remote"])


async def test_rows_are_listed_by_ten_and_continue_after_the_last(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, page, url):
        for number in range(23):
            assert await post(server, "/send", {**FIRST, "topic": f"topic {number:02}"}) == 200
        await page.goto(url)
        await page.get_by_label("Receiver").fill("b@remote")
        await page.get_by_role("button", name="Show").click()
        topics: list[str] = []
        while True:
            topics += await page.get_by_role("row").locator("td:nth-child(3)").all_inner_texts()
            following = page.get_by_role("link", name="Next 10")
            if not await following.count():
                break
            await following.click()
        assert topics == [f"topic {number:02}" for number in range(23)]
        await page.get_by_label("Received at").fill("1h")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_text("No message can be fetched")).to_be_visible()


async def test_a_narrow_screen_shows_everything_without_scrolling_sideways(tmp_path: Path) -> None:
    wide = {"sender": "a" * 60 + "@local", "receiver": "b" * 60 + "@remote", "topic": "one-word-" * 30}
    async with shown(tmp_path, viewport={"width": 360, "height": 740}) as (server, page, url):
        assert await post(server, "/send", wide) == 200
        await page.goto(f"{url}?receiver={wide['receiver']}&receivedat=-1h")
        await expect(page.get_by_text(wide["topic"])).to_be_visible()
        await page.screenshot(path=str(tmp_path / "page.png"), full_page=True)
        assert await page.evaluate("document.documentElement.scrollWidth") == 360
        outside = """Array.from(document.querySelectorAll("td, td a, input:not([type=hidden]), button, h2"))
            .map(each => each.getBoundingClientRect()).filter(box => box.left < 0 || box.right > 360).length"""
        assert await page.evaluate(outside) == 0
        # Each value has its heading, in a font that need not be enlarged.
        heading = """getComputedStyle(document.querySelector("td:nth-child(3)"), "::before").content"""
        assert await page.evaluate(heading) == '"Topic"'
        size = """Math.min(...Array.from(document.querySelectorAll("td, label, input")).map(
            each => parseFloat(getComputedStyle(each).fontSize)))"""
        assert await page.evaluate(size) >= 13


async def test_reenqueue_and_errors_are_shown(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, page, url):
        await page.goto(url + "?receiver=unknown")
        await expect(page.get_by_role("alert")).to_have_text("sender not found")
        assert await post(server, "/send", FIRST) == 200
        client = AsyncHttpClient(url)
        message = await client.fetch("b@remote", timedelta(minutes=1))
        await client.ack(message["mid"][0], message["lid"][0], AckStatus.REJECTED)
        await page.goto(url + "?receiver=b@remote")
        await expect(page.get_by_role("row").nth(1)).to_contain_text("rejected")
        await page.get_by_role("button", name="Re-enqueue").click()
        await expect(page.get_by_role("status")).to_have_text("Re-enqueued: 0 leases ended")
        await page.get_by_label("Delay").fill("soon")
        await page.get_by_label("From").fill("a@local")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("alert")).to_contain_text("the duration 'soon' is invalid")
        assert await page.get_by_label("Delay").input_value() == "soon", "what was typed is kept"
        assert await page.get_by_label("To", exact=True).input_value() == "b@remote"


async def test_another_site_cannot_send_a_form(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, page, url):
        attack = f"""<form method="post" action="{url}send"><input name="sender" value="x"><input name="receiver"
            value="victim"><button>go</button></form>"""

        async def answer(_: web.Request) -> web.Response:
            return web.Response(text=attack, content_type="text/html")

        application = web.Application()
        application.router.add_get("/", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            port = runner.addresses[0][1]
            await page.goto(f"http://localhost:{port}/")
            async with page.expect_response(url + "send") as sent:
                await page.get_by_role("button").click()
            assert (await sent.value).status == 403
        finally:
            await runner.cleanup()
        unknown = await requested(server.http_endpoint, "POST", "/pandora/fetch", {"receiver": "victim"})
        assert unknown.form["error"] == ["sender not found"]


async def test_a_form_without_its_token_does_nothing(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data", mailboxes__http_prefix="/pandora") as server:
        form = {"action": "send", "to": "b", "from": "a", "csrf": "wrong"}
        answer = await requested(server.http_endpoint, "POST", "/pandora/", form)
        assert answer.status == 403
        assert b"the form is not valid any more" in answer.content
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert (await requested(server.http_endpoint, "PUT", "/pandora/")).status == 405


async def test_a_browser_asks_for_the_token_as_a_password(tmp_path: Path) -> None:
    async with secured_server(tmp_path, mailboxes__http_prefix="/pandora") as secured:
        url = f"https://{secured.server.http_endpoint}/pandora/"
        token = await secured.token("mailbox.read:*", "mailbox.send:*", "mailbox.manage:*")
        tls = ssl.create_default_context(cafile=str(secured.authority.ca))
        refused = await requested(secured.server.http_endpoint, "GET", "/pandora/", tls=tls)
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Basic realm=")
        credentials = {"username": "anything", "password": token}
        async with browser(ignore_https_errors=True, http_credentials=credentials) as context:
            page = await context.new_page()
            await page.goto(url)
            await page.get_by_label("To", exact=True).fill("b@remote")
            await page.get_by_label("From").fill("a@local")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_role("status")).to_contain_text("Sent: ")
            await expect(page.get_by_role("row")).to_have_count(2)
