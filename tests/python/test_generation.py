"""Generations on the scripted engine: every way to take a result, and every way to end one."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import pytest
from conftest import wait_until

import pronk
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]

PROMPT = "Tell me"
ANSWER = "al pha beta, \N{GRINNING FACE} gamma."


@pytest.fixture
def model() -> ScriptedModel:
    model = ScriptedModel()
    model.script(PROMPT, ANSWER)
    return model


@pytest.fixture
def scheduler(model: ScriptedModel, drain: Drain) -> Iterator[pronk.InferenceScheduler]:
    with pronk.InferenceScheduler(2, engine=model.engine, n_ctx=256) as scheduler:
        yield scheduler
        drain(scheduler)


def test_iteration_gives_all_the_text(scheduler: pronk.InferenceScheduler) -> None:
    with scheduler.acquire() as permit:
        generation = permit.generate(PROMPT, temperature=0)
        pieces = list(generation)
        assert "".join(pieces) == ANSWER
        assert "" not in pieces
        assert list(generation) == []  # handed out once
        assert generation.text == ANSWER
        assert generation.done


def test_result(scheduler: pronk.InferenceScheduler) -> None:
    with scheduler.acquire() as permit:
        done = permit.generate(PROMPT, temperature=0).result()
    assert done.text == str(done) == ANSWER
    assert done.finish_reason == "stop"
    assert scheduler.engine is not None
    assert scheduler.engine.detokenize(done.tokens) == ANSWER
    assert done.usage.prompt_tokens == len(scheduler.engine.tokenize(PROMPT))
    assert done.usage.completion_tokens == len(done.tokens)
    assert done.logprobs is None
    timings = done.timings
    assert 0 <= timings.queued <= timings.first_token
    assert timings.prefill >= 0
    assert timings.decode >= 0


def test_a_completion_is_frozen_and_prints_well(scheduler: pronk.InferenceScheduler) -> None:
    done = scheduler.generate(PROMPT, temperature=0, max_tokens=2).result()
    assert repr(done).startswith("pronk.Completion(text='al', tokens=[")
    assert "finish_reason='length'" in repr(done)
    assert "pronk.Usage(prompt_tokens=" in repr(done)
    assert done.usage.asdict()["completion_tokens"] == 2
    with pytest.raises(AttributeError):
        done.text = "other"  # type: ignore[misc]


def test_text_outlives_its_completion(scheduler: pronk.InferenceScheduler) -> None:
    usage = scheduler.generate(PROMPT, temperature=0, max_tokens=2).result().usage
    gc.collect()
    assert usage.completion_tokens == 2


def test_length(scheduler: pronk.InferenceScheduler) -> None:
    done = scheduler.generate(PROMPT, temperature=0, max_tokens=3).result()
    assert (done.finish_reason, len(done.tokens)) == ("length", 3)
    done = scheduler.generate(PROMPT, max_tokens=0).result()
    assert (done.finish_reason, done.tokens, done.text) == ("length", [], "")


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("beta", "al pha "),
        (["gamma", "pha"], "al "),
        ("a", ""),
        (["pha b", "pha beta"], "al "),
        ("\N{GRINNING FACE}", "al pha beta, "),
        ("not there", ANSWER),
    ],
)
def test_stop_strings_never_show(
    scheduler: pronk.InferenceScheduler, stop: str | list[str], text: str
) -> None:
    with scheduler.acquire() as permit:
        generation = permit.generate(PROMPT, temperature=0, stop=stop)
        assert "".join(generation) == text
        assert generation.result().text == text
        assert generation.result().finish_reason == "stop"


def test_logprobs(scheduler: pronk.InferenceScheduler) -> None:
    done = scheduler.generate(PROMPT, temperature=0, max_tokens=3, logprobs=2).result()
    assert done.logprobs is not None
    assert [entry.token for entry in done.logprobs] == done.tokens
    for entry in done.logprobs:
        assert entry.logprob <= 0
        assert len(entry.top) == 2
        assert entry.top[0][0] == entry.token
        assert entry.top[0][1] == pytest.approx(entry.logprob)
    done = scheduler.generate(PROMPT, temperature=0, max_tokens=3, logprobs=True).result()
    assert done.logprobs is not None
    assert [entry.top for entry in done.logprobs] == [[], [], []]


def test_result_timeout_leaves_it_running(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    model.hold()
    generation = scheduler.generate(PROMPT, temperature=0)
    for timeout in (0, 0.05):
        with pytest.raises(pronk.ResultTimeout, match=f"within {timeout} s"):
            generation.result(timeout)
    with ThreadPoolExecutor(1) as pool, pytest.raises(TimeoutError):
        pool.submit(generation.result, 0.05).result(20)
    assert not generation.done
    assert "running" in repr(generation)
    model.resume()
    assert generation.result(20).text == ANSWER
    assert "done" in repr(generation)


def test_cancel(model: ScriptedModel, scheduler: pronk.InferenceScheduler) -> None:
    with scheduler.acquire() as permit:
        model.hold()
        generation = permit.generate(PROMPT, temperature=0)
        model.step(3)
        got = next(generation)
        generation.cancel()
        generation.cancel()
        model.resume()
        done = generation.result(20)
        assert done.finish_reason == "cancelled"
        assert ANSWER.startswith(done.text)
        assert done.text.startswith(got)
        with pytest.raises(pronk.GenerationCancelled) as caught:
            got += "".join(generation)
        assert caught.value.completion is not None
        assert caught.value.completion.text == done.text
        assert permit.generate(PROMPT, temperature=0).result(20).text == ANSWER


def test_cancel_while_queued(scheduler: pronk.InferenceScheduler) -> None:
    permits = [scheduler.acquire(), scheduler.acquire()]
    generation = scheduler.generate(PROMPT)
    assert scheduler.waiting_count == 1
    generation.cancel()
    assert generation.result(20).finish_reason == "cancelled"
    assert scheduler.waiting_count == 0
    assert scheduler.statistics().evaluated_tokens == 0
    del permits


def test_dropping_cancels(model: ScriptedModel, scheduler: pronk.InferenceScheduler) -> None:
    model.hold()
    generation = scheduler.generate(PROMPT, ignore_eos=True)
    gone = ref(generation)
    assert model.wait_held(20)
    del generation
    assert gone() is None
    model.resume()
    wait_until(lambda: scheduler.statistics().cancelled == 1)


def test_abandoned_loop_cancels(model: ScriptedModel, scheduler: pronk.InferenceScheduler) -> None:
    model.set_delay(0.002)
    with scheduler.acquire() as permit:
        for _ in permit.generate(PROMPT, ignore_eos=True):
            break
    wait_until(lambda: scheduler.statistics().cancelled == 1)
    assert scheduler.statistics().running == 0


def test_release_cancels_what_runs(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    model.hold()
    permit = scheduler.acquire()
    generation = permit.generate(PROMPT, ignore_eos=True)
    permit.release()
    model.resume()
    assert generation.result(20).finish_reason == "cancelled"


def test_one_at_a_time_per_permit(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    with scheduler.acquire() as permit:
        model.hold()
        generation = permit.generate(PROMPT, temperature=0)
        with pytest.raises(pronk.PermitBusyError):
            permit.generate("another")
        model.resume()
        assert generation.result(20).text == ANSWER
        assert permit.generate(PROMPT, temperature=0).result(20).text == ANSWER


def test_two_threads_on_one_permit(scheduler: pronk.InferenceScheduler) -> None:
    for _ in range(20):
        barrier = threading.Barrier(2)
        with scheduler.acquire() as permit, ThreadPoolExecutor(2) as pool:

            def work(
                permit: pronk.InferencePermit = permit, barrier: threading.Barrier = barrier
            ) -> str:
                barrier.wait(20)
                try:
                    return permit.generate(PROMPT, temperature=0).result(20).text
                except pronk.PermitBusyError:
                    return "busy"

            texts = [future.result(20) for future in [pool.submit(work), pool.submit(work)]]
        assert set(texts) <= {ANSWER, "busy"}
        assert ANSWER in texts


def test_many_threads_many_generations(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    assert scheduler.engine is not None
    prompts = [f"prompt {i}" for i in range(32)]
    expected = [model.expected_text(p, 8) for p in prompts]

    def work(prompt: str) -> str:
        with scheduler.acquire() as permit:
            return permit.generate(prompt, max_tokens=8, temperature=0).result(20).text

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, prompts)) == expected
    assert scheduler.statistics().high_water <= 2
    assert model.violations == []


def test_many_queued_generations(model: ScriptedModel, scheduler: pronk.InferenceScheduler) -> None:
    before = threading.active_count()
    model.hold()
    generations = [scheduler.generate(PROMPT, temperature=0) for _ in range(500)]
    assert threading.active_count() == before
    assert scheduler.waiting_count >= 498
    model.resume()
    assert {g.result(60).text for g in generations} == {ANSWER}


def test_waiting_lets_other_threads_run(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    model.hold()
    generation = scheduler.generate(PROMPT, temperature=0)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(generation.result)
        assert model.wait_held(20)
        model.resume()
        assert result.result(20).text == ANSWER


def test_failure_ends_the_stream_with_an_error(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    with scheduler.acquire() as permit:
        model.hold()
        generation = permit.generate(PROMPT, temperature=0)
        model.step(3)
        pieces = [next(generation)]
        model.fault("runtime_error")
        model.resume()
        with pytest.raises(pronk.BackendError):
            pieces.extend(generation)
        assert ANSWER.startswith("".join(pieces))
        with pytest.raises(pronk.BackendError):
            generation.result(20)
        assert generation.done


def test_prompt_too_long(scheduler: pronk.InferenceScheduler) -> None:
    with scheduler.acquire() as permit:
        with pytest.raises(pronk.ContextOverflowError, match="n_ctx=256") as caught:
            permit.generate([1] * 256)
        assert isinstance(caught.value, ValueError)
        done = permit.generate([1] * 255, ignore_eos=True).result(20)
        assert done.finish_reason == "length"
        assert done.usage.prompt_tokens == 255


def test_close_ends_what_runs(model: ScriptedModel) -> None:
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.set_delay(0.001)
        running = scheduler.generate(PROMPT, ignore_eos=True)
        queued = scheduler.generate(PROMPT)
        next(running)
        assert scheduler.close(timeout=20)
        assert running.result(20).finish_reason == "cancelled"
        with pytest.raises(pronk.SchedulerClosedError):
            queued.result(20)
        with pytest.raises(pronk.SchedulerClosedError):
            scheduler.generate(PROMPT)


def test_draining_close_finishes_what_runs(model: ScriptedModel) -> None:
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=256) as scheduler:
        generations = [scheduler.generate(PROMPT, temperature=0) for _ in range(5)]
        assert scheduler.close(drain=True, timeout=60)
        assert [g.result(0).text for g in generations] == [ANSWER] * 5


def test_the_engine_outlives_its_model_and_scheduler() -> None:
    model = ScriptedModel()
    scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64)
    permit = scheduler.acquire()
    engine = scheduler.engine
    del scheduler, model
    gc.collect()
    assert permit.generate("abc", max_tokens=2).result(20).tokens
    permit.release()
    assert engine is not None
    assert engine.tokenize("abc")


def test_scheduler_gives_the_engine_back() -> None:
    model = ScriptedModel()
    scheduler = pronk.InferenceScheduler(1)
    engines = [scheduler.engine]
    scheduler.init_pool(model.engine, 64)
    engines.append(scheduler.engine)
    assert engines == [None, model.engine]
    scheduler.close()
