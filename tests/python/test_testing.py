"""pronk.testing through the whole stack: gate, decode loop, bindings."""

from __future__ import annotations

import dataclasses
import gc
import signal
import threading
import time

import pytest

import pronk
from pronk.testing import ManualClock, RecordedBatch, ScriptedModel, SequenceKey

KINDS = [("plain", 0), ("sliding_window", 8), ("recurrent", 0), ("hybrid", 0)]
GREEDY = {"temperature": 0.0}


@pytest.fixture
def model():
    model = ScriptedModel()
    yield model
    model.resume()
    model.release_blocked()
    assert model.violations == []


def run(scheduler, prompt, n):
    return scheduler.generate(prompt, max_tokens=n, **GREEDY).result(timeout=60)


@pytest.mark.parametrize(("kind", "n_swa"), KINDS)
@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_greedy_text_is_the_expected_one(kind, n_swa, layout):
    model = ScriptedModel(memory_kind=kind, n_swa=n_swa)
    assert model.engine.memory_kind == kind
    prompts = [f"{'shared start, ' * (i % 3)}prompt {i}" for i in range(12)]
    with pronk.InferenceScheduler(3, engine=model.engine, n_ctx=128, layout=layout) as scheduler:
        running = [scheduler.generate(p, max_tokens=9, **GREEDY) for p in prompts]
        for prompt, generation in zip(prompts, running, strict=True):
            assert generation.result(timeout=60).text == model.expected_text(prompt, 9)
    assert model.violations == []


def test_it_is_an_engine(model):
    assert isinstance(model.engine, pronk.InferenceEngine)
    assert model.engine is model.engine
    assert model.engine.n_vocab == 259
    assert model.engine.tokenize("hé") == list("hé".encode())
    assert model.engine.detokenize(list("hé".encode())) == "hé"
    assert "scripted" in repr(model).lower()


def test_script_with_text_tokens_and_bytes(model):
    model.script("colour?", "blue")
    model.script([1, 2, 3], b"\xc3\xa9")
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        done = run(scheduler, "colour?", 32)
        assert (done.text, done.finish_reason) == ("blue", "stop")
        assert run(scheduler, [1, 2, 3], 32).text == "é"
        assert model.expected("colour?", 32) == list(b"blue")
        # One letter more is another text.
        assert run(scheduler, "colour??", 4).text == model.expected_text("colour??", 4) != "blue"


def test_pieces_of_one_s_own():
    model = ScriptedModel(pieces=["yes", "no", " ", b"\xf0\x9f", b"\xa6\x99"], add_bos=True)
    assert model.engine.tokenize("no yes") == [5, 1, 2, 0]
    model.script("no", "🦙 yes")
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        assert run(scheduler, "no", 8).text == "🦙 yes"
        with pytest.raises(pronk.InvalidArgumentError, match="byte 2"):
            scheduler.generate("nobody")


@pytest.mark.parametrize(
    "bad",
    [
        {"memory_kind": "magnetic"},
        {"memory_kind": "sliding_window"},
        {"n_swa": 4},
        {"n_swa": -1},
        {"n_swa": True},
        {"n_ctx_train": 0},
        {"pieces": []},
        {"pieces": ["a", ""]},
        {"pieces": [1]},
        {"seed": -1},
        {"add_bos": 1},
        {"clock": 3},
    ],
    ids=str,
)
def test_bad_options(bad):
    with pytest.raises((pronk.Error, TypeError)):
        ScriptedModel(**bad)


def test_hold_step_cancel(model):
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.hold()
        assert not model.wait_held(0.0)
        generation = scheduler.generate("hello", max_tokens=30, **GREEDY)
        assert model.wait_held()
        assert model.counters.decode_calls == 0
        model.step(3)
        assert model.wait_decodes(3)
        assert model.wait_held()
        assert model.counters.decode_calls == 3
        assert not generation.done
        generation.cancel()
        done = generation.result(timeout=60)
        assert done.finish_reason == "cancelled"
        assert model.expected_text("hello", 30).startswith(done.text)
        model.resume()
        assert run(scheduler, "again", 5).text == model.expected_text("again", 5)


def test_close_frees_a_held_decode(model):
    scheduler = pronk.InferenceScheduler(2, engine=model.engine, n_ctx=64)
    model.hold()
    generation = scheduler.generate("hello", **GREEDY)
    assert model.wait_held()
    assert scheduler.close()
    assert generation.result(timeout=60).finish_reason == "cancelled"


def test_dropping_the_model_frees_a_held_decode():
    model = ScriptedModel()
    expected = model.expected_text("hello", 6)
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.hold()
        generation = scheduler.generate("hello", max_tokens=6, **GREEDY)
        assert model.wait_held()
        del model
        gc.collect()
        assert generation.result(timeout=60).text == expected


@pytest.mark.parametrize("kind", ["failed", "no_memory", "no_slot", "aborted", "invalid_batch"])
def test_a_passing_failure_changes_nothing(model, kind):
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.fault(kind, call=1)
        model.fault(kind, call=5)
        assert run(scheduler, "hello", 20).text == model.expected_text("hello", 20)


@pytest.mark.parametrize("kind", ["failed", "runtime_error", "bad_alloc", "foreign_exception"])
def test_a_lasting_failure_is_an_error(model, kind):
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.fault(kind, call=4, times=None)
        with pytest.raises(pronk.BackendError):
            run(scheduler, "first", 20)
        model.clear_faults()
        assert run(scheduler, "second", 20).text == model.expected_text("second", 20)


@pytest.mark.parametrize("kind", ["nan_logits", "impossible_logits"])
def test_impossible_logits_end_the_generation(model, kind):
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.fault(kind)
        with pytest.raises(pronk.BackendError):
            run(scheduler, "first", 20)
        assert run(scheduler, "second", 20).text == model.expected_text("second", 20)


def test_a_context_that_cannot_be_made(model):
    model.fault("no_memory", point="make_backend")
    scheduler = pronk.InferenceScheduler(1)
    with pytest.raises(pronk.InsufficientMemoryError):
        scheduler.init_pool(model.engine, n_ctx=64, n_cached=0)
    assert model.counters.contexts_alive == 0


def test_idle_sequences_give_way_where_memory_is_short(model):
    model.fault("no_memory", point="make_backend")
    with pronk.InferenceScheduler(1) as scheduler:
        scheduler.init_pool(model.engine, n_ctx=64)
        assert run(scheduler, "hello", 20).text == model.expected_text("hello", 20)
    # Asked for by name, they are not taken away.
    model.fault("no_memory", point="make_backend")
    scheduler = pronk.InferenceScheduler(1)
    with pytest.raises(pronk.InsufficientMemoryError):
        scheduler.init_pool(model.engine, n_ctx=64, n_cached=4)


def test_block_and_release(model):
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.fault("block", call=2)
        generation = scheduler.generate("hello", max_tokens=8, **GREEDY)
        assert model.wait_blocked()
        assert not model.wait_blocked(0.01, count=2)
        model.release_blocked()
        assert generation.result(timeout=60).text == model.expected_text("hello", 8)


def test_a_refused_removal_does_no_harm(model):
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        run(scheduler, "hello world", 4)
        model.fault("refuse", point="seq_remove", times=1)
        assert run(scheduler, "hello there", 4).text == model.expected_text("hello there", 4)


def test_bad_faults(model):
    with pytest.raises(pronk.InvalidArgumentError, match="no_slot"):
        model.fault("no_slots")
    with pytest.raises(pronk.InvalidArgumentError):
        model.fault("refuse")
    with pytest.raises(pronk.InvalidArgumentError):
        model.fault("failed", call=0)
    with pytest.raises(pronk.InvalidArgumentError):
        model.fault("failed", applied=-1)
    with pytest.raises(pronk.InvalidArgumentError):
        model.fault("sleep", seconds=float("nan"))
    with pytest.raises(pronk.InvalidArgumentError):
        model.step()


def test_counters_batches_and_sequences(model):
    model.record()
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        run(scheduler, "abc", 3)
        counters = model.counters
        assert counters.items == 5
        assert counters.outputs == 3
        assert counters.decode_calls == counters.decodes_finished == 3
        assert counters.contexts_alive == 1
        assert counters.sequence_items == {SequenceKey(0, 0): 5}
        assert counters.sequence_items[0, 0] == 5
        assert model.cells_used == 5
        assert model.sequences[0, 0][:3] == list(b"abc")
    with pytest.raises(dataclasses.FrozenInstanceError):
        counters.items = 0
    first = model.batches[0]
    assert isinstance(first, RecordedBatch)
    assert [item.token for item in first.items] == list(b"abc")
    assert [item.output for item in first.items] == [False, False, True]
    assert first.result == "ok"
    assert len(model.batches) == 3


def test_manual_clock(model):
    clock = ManualClock()
    assert clock.now() == 0.0
    clock.advance(2.5)
    assert clock.now() == 2.5
    for bad in (-1.0, float("nan"), float("inf"), "1", True):
        with pytest.raises((pronk.InvalidArgumentError, pronk.InvalidTypeError)):
            clock.advance(bad)
    assert ManualClock.__module__ == "pronk.testing"
    assert not clock.wait_for_waiters(1, timeout=0.0)


def test_time_passes_as_the_test_wants():
    clock = ManualClock()
    model = ScriptedModel(clock=clock)
    model.set_delay(1.0, per_token=0.5)
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64, clock=clock) as scheduler:
        done = run(scheduler, "abcd", 3)
    # The prompt: 1 + 4 x 0.5 s, then two single tokens: 1.5 s each.
    assert clock.now() == 6.0
    assert done.timings.first_token == pytest.approx(3.0)
    assert done.timings.decode == pytest.approx(3.0)


def test_a_timeout_on_the_manual_clock():
    clock = ManualClock()
    scheduler = pronk.InferenceScheduler(1, clock=clock)
    permit = scheduler.acquire()
    raised = []

    def wait():
        try:
            scheduler.acquire(timeout=5.0)
        except pronk.AcquireTimeout as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert clock.wait_for_waiters()
    clock.advance(4.9)
    assert clock.wait_for_waiters()
    assert raised == []
    clock.advance(0.1)
    waiter.join(60)
    assert len(raised) == 1
    permit.release()
    scheduler.close()


def test_waits_release_the_gil_and_see_signals(model):
    main = threading.get_ident()
    interrupt = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    ticks = []

    def count():
        while interrupt.is_alive():
            ticks.append(None)
            time.sleep(0.005)

    counter = threading.Thread(target=count)
    interrupt.start()
    counter.start()
    with pytest.raises(KeyboardInterrupt):
        model.wait_held(timeout=60)
    counter.join()
    assert len(ticks) > 5
