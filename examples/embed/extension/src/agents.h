// Agents that are threads. Nothing here knows of Python.
#pragma once

#include <pronk/pronk.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace agents {

/// Runs an agent for each task, each in a thread of its own, for `turns` model calls of at most
/// `max_tokens` tokens. Returns their last completions. `look_up` is called every 50 ms on the
/// calling thread; what it throws stops all agents and comes out, as does the first error of an
/// agent.
std::vector<pronk::Completion> run(pronk::InferenceScheduler& scheduler,
                                   const std::vector<std::string>& tasks, std::int32_t turns,
                                   std::int32_t max_tokens, const std::function<void()>& look_up);

}  // namespace agents
