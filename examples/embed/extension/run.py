"""Runs eight agents over two permits.

usage: python run.py [MODEL.gguf]
"""

import sys

import agents_in_cpp

import pronk

model = sys.argv[1] if len(sys.argv) > 1 else pronk.default_model()
engine = pronk.InferenceEngine.load(model)
with pronk.InferenceScheduler(max_concurrent=2, engine=engine, n_ctx=512) as scheduler:
    tasks = [f"Say something about the number {n}." for n in range(8)]
    for task, completion in zip(tasks, agents_in_cpp.run_agents(scheduler, tasks), strict=True):
        print(f"{task} {completion.text!r} ({completion.usage.cached_tokens} tokens reused)")
    statistics = scheduler.statistics()
    print(f"{statistics.acquired} permits, at most {statistics.high_water} at once")
