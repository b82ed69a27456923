"""Debian's Chromium, driven by Playwright. A test is skipped where it is not installed, except in CI."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import BrowserContext, async_playwright


@asynccontextmanager
async def browser(**options: object) -> AsyncIterator[BrowserContext]:
    """Run Chromium without a window; yield a context with ``options`` of Playwright's ``new_context``."""
    program = shutil.which("chromium")
    if program is None:
        assert os.environ.get("CI") != "true", "chromium is missing"
        pytest.skip("needs Debian's package chromium")
    # Chromium cannot isolate its processes as root, or without user namespaces; it shows pages of the test only.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            context = await running.new_context(**options)  # type: ignore[arg-type]
            context.set_default_timeout(30_000)
            yield context
        finally:
            await running.close()
