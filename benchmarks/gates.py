"""What `async with` enters: pronk's gate, and those that it is measured against."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import pronk


class AsyncGate(Protocol):
    def __aenter__(self) -> Awaitable[object]: ...

    def __aexit__(self, kind: None, error: None, traceback: None, /) -> Awaitable[object]: ...


Enter = Callable[[], AsyncGate]
"""Called for each `async with`."""


def pronk_gate(permits: int) -> Enter:
    return pronk.InferenceScheduler(permits).acquire_async


def asyncio_gate(permits: int) -> Enter:
    semaphore = asyncio.Semaphore(permits)
    return lambda: semaphore


def anyio_gate(permits: int) -> Enter:
    import anyio

    limiter = anyio.CapacityLimiter(permits)
    return lambda: limiter
