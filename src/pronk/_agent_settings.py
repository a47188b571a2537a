"""What all runs of an agent have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pronk._core import InferenceScheduler
    from pronk._tool import Tool


@dataclass(frozen=True)
class AgentSettings:
    """As the user gave them, checked."""

    scheduler: InferenceScheduler
    tools: Mapping[str, Tool[..., Any]]
    max_iterations: int
    approve: Callable[..., Any] | None
    summarise: Callable[..., Any] | None
    context_tokens: int | None
    max_tool_threads: int
    params: Mapping[str, Any]
