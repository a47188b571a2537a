"""pronk itself, as its users would use it: a permit per model call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pronk
from benchmarks.peers.client import Rules
from benchmarks.settings import Settings


class PronkClient:
    def __init__(self, scheduler: pronk.InferenceScheduler) -> None:
        self.scheduler = scheduler

    def complete(
        self,
        who: int,
        prompt: Sequence[int],
        n: int,
        on_piece: Callable[[], None],
        rules: Rules | None = None,
    ) -> list[int]:
        with self.scheduler.acquire() as permit:
            generation = permit.generate(
                prompt,
                max_tokens=n,
                temperature=0,
                ignore_eos=rules is None,
                grammar=rules.grammar if rules else None,
                json_schema=rules.schema if rules else None,
            )
            for _ in generation:
                on_piece()
            return generation.result().tokens


@contextmanager
def open_pronk(settings: Settings, *, permits: int, n_ctx: int) -> Iterator[PronkClient]:
    with pronk.InferenceScheduler(permits) as scheduler:
        scheduler.init_pool(settings.engine, n_ctx=n_ctx, **settings.pool)
        yield PronkClient(scheduler)
