"""Servers that others wrote, beside which the mesh is measured."""

from __future__ import annotations

import asyncio
import time

import aiohttp

from launcher.processes import ServiceFailed, ServiceProcess


async def serving(process: ServiceProcess, url: str, within_s: float) -> None:
    """Return when `url` answers with 200. Raises `ServiceFailed` when the process ends or the time is over."""
    ends = time.monotonic() + within_s
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            if process.exit_code is not None or time.monotonic() > ends:
                name = process.spec.name
                raise ServiceFailed(f"{name} has ended or is not serving after {within_s:g} s:\n{process.tail()}")
            await asyncio.sleep(0.2)
