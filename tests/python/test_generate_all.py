"""A list of prompts: all of them, in order, or none left running."""

from __future__ import annotations

import pytest

import pronk
from pronk.testing import ScriptedModel

GREEDY = {"temperature": 0, "max_tokens": 6}


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


def test_results_in_order(model: ScriptedModel) -> None:
    prompts = [f"prompt {number}" for number in range(200)]
    fractions: list[float] = []
    with pronk.InferenceScheduler(3, engine=model.engine, n_ctx=64) as scheduler:
        completions = pronk.generate_all(scheduler, prompts, progress=fractions.append, **GREEDY)
    assert [c.text for c in completions] == [model.expected_text(p, 6) for p in prompts]
    assert fractions == sorted(fractions)
    assert (len(fractions), fractions[-1]) == (200, 1.0)


def test_no_prompts(model: ScriptedModel) -> None:
    with pronk.InferenceScheduler(3, engine=model.engine, n_ctx=64) as scheduler:
        assert pronk.generate_all(scheduler, [], progress=True) == []


def test_a_failure_cancels_the_others(model: ScriptedModel) -> None:
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.fault("runtime_error", call=3)
        with pytest.raises(pronk.BackendError):
            pronk.generate_all(scheduler, [f"prompt {n}" for n in range(50)], **GREEDY)
        assert scheduler.waiting_count == 0
        assert scheduler.generate("next", **GREEDY).result().text == model.expected_text("next", 6)
    assert model.violations == []


def test_a_bad_prompt_cancels_those_before_it(model: ScriptedModel) -> None:
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.hold()
        with pytest.raises(pronk.InvalidArgumentError):
            pronk.generate_all(scheduler, ["good", "good too", [-1]], **GREEDY)
        model.resume()
        assert scheduler.waiting_count == 0
