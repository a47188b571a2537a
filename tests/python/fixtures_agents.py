"""Fixtures for agents on scripted models; the conftest imports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agent_rig import Message, ScriptedScheduler

import pronk

__all__ = ["start"]

Drain = Callable[[pronk.InferenceScheduler], None]


@pytest.fixture
def start(drain: Drain) -> Iterator[Callable[..., ScriptedScheduler]]:
    """Make schedulers whose replies a function gives."""
    made = []

    def start(reply: Callable[[list[Message]], str], *args: Any, **options: Any) -> Any:
        made.append(ScriptedScheduler(reply, *args, **options))
        return made[-1]

    yield start
    for scheduler in made:
        drain(scheduler)
        scheduler.close()
        assert scheduler.model.violations == []
