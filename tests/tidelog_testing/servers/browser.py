"""Debian's Chromium, driven by Playwright. A test is skipped where it is not installed, except in CI."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import BrowserContext, async_playwright

from tidelog_testing.parts.missing import missing


@asynccontextmanager
async def browser(**options: object) -> AsyncIterator[BrowserContext]:
    """Run Chromium without a window; yield a context with ``options`` of Playwright's ``new_context``."""
    program = shutil.which("chromium")
    if program is None:
        missing("Chromium is not installed. On Debian and Ubuntu: apt-get install chromium")
    # Chromium cannot isolate its processes as root, or without user namespaces; it shows pages of the test only.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            context = await running.new_context(**options)  # type: ignore[arg-type]  # options by name
            context.set_default_timeout(30_000)
            yield context
        finally:
            await running.close()
