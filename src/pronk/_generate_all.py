"""Runs a list of prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pronk._progress import reporter

if TYPE_CHECKING:
    from pronk._core import Completion, Generation, InferenceScheduler


def generate_all(
    scheduler: InferenceScheduler,
    prompts: Iterable[str | Sequence[int]],
    *,
    progress: bool | Callable[[float], object] | None = None,
    priority: int = 0,
    **params: Any,
) -> list[Completion]:
    """Run all prompts, as many at a time as the scheduler allows, and return what became of them.

    The prompts wait in the scheduler's queue without a thread each, beside everybody else's. When
    one fails, or the wait is interrupted, the others are cancelled.

    Args:
        scheduler: A scheduler with an engine.
        prompts: Texts or sequences of token ids; all are taken before the first runs.
        progress: True for a progress bar on a terminal, or a function that is called with the
            fraction done, from 0 to 1.
        priority: Of every prompt, as for ``scheduler.generate``.
        **params: Of every generation, as for ``scheduler.generate``.

    Returns:
        A completion per prompt, in the order of the prompts.

    Raises:
        pronk.Error: What ended the first generation, in that order, which failed; or as
            ``scheduler.generate`` does.

    Example:
        >>> completions = pronk.generate_all(scheduler, ["One", "Two"], max_tokens=8, progress=True)
        >>> [completion.text for completion in completions]
    """
    generations: list[Generation] = []
    try:
        with reporter(progress, "Generating") as report:
            generations.extend(
                scheduler.generate(prompt, priority=priority, **params) for prompt in prompts
            )
            completions = []
            for generation in generations:
                completions.append(generation.result())
                if report is not None:
                    report(len(completions) / len(generations))
            return completions
    except BaseException:
        for generation in generations:
            generation.cancel()
        raise
