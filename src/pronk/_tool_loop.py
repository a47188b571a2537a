"""An event loop in a thread, for the async tools of a run in plain threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pronk._asyncio import spawn_task

if TYPE_CHECKING:
    from pronk._tool_workers import Outcome


class LoopThread:
    """One per run: an agent in a tool has its own, so that they never wait in a circle."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="pronk-tool-loop", daemon=True)
        self._thread.start()

    def spawn(
        self,
        function: Callable[[], Awaitable[Any]],
        done: Callable[[Outcome], None],
        context: contextvars.Context,
    ) -> Callable[[], None]:
        """Await what ``function`` returns and call ``done``; return what cancels that."""
        cancels: list[Callable[[], None]] = []

        def start() -> None:
            cancels.append(spawn_task(function, done, context))

        def cancel() -> None:
            for each in cancels:
                each()

        self._call_soon(start)
        return lambda: self._call_soon(cancel)

    def stop(self) -> None:
        """Cancel the tasks and end the thread, without waiting for either."""
        self._call_soon(self._loop.stop)

    def _call_soon(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # stopped already
            self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
