#include "agents.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>

namespace agents {
namespace {

using namespace std::chrono_literals;

constexpr auto kEver = 24h * 365;
constexpr auto kSlice = 50ms;  // how soon a waiting agent notices that it is to stop

struct Stopped {};

pronk::InferencePermit acquire(pronk::InferenceScheduler& scheduler, const std::stop_token& stop) {
  pronk::Ticket ticket = scheduler.enqueue();
  while (ticket.wait_for(kEver, kSlice) == pronk::TicketStatus::kWaiting) {
    if (stop.stop_requested()) throw Stopped();  // the ticket leaves the queue
  }
  return ticket.take();
}

pronk::Completion complete(pronk::InferencePermit& permit, const std::string& prompt,
                           std::int32_t max_tokens, const std::stop_token& stop) {
  pronk::GenerationParams params;
  params.max_tokens = max_tokens;
  params.sampling.temperature = 0;
  pronk::Generation generation = permit.generate(prompt, params);
  while (!generation.wait_for(kEver, kSlice)) {
    if (stop.stop_requested()) throw Stopped();  // a dropped generation is cancelled
  }
  return generation.result();
}

pronk::Completion run_one(pronk::InferenceScheduler& scheduler, const std::string& task,
                          std::int32_t turns, std::int32_t max_tokens,
                          const std::stop_token& stop) {
  std::string conversation = task;
  pronk::Completion completion;
  for (std::int32_t turn = 0; turn < turns; ++turn) {
    {
      // One permit for one model call.
      pronk::InferencePermit permit = acquire(scheduler, stop);
      completion = complete(permit, conversation, max_tokens, stop);
    }
    // Here a tool may run: others use the permit meanwhile. The next call evaluates only what is
    // new, because the conversation so far stays in the KV cache.
    conversation += completion.text + "\nGo on.\n";
  }
  return completion;
}

}  // namespace

std::vector<pronk::Completion> run(pronk::InferenceScheduler& scheduler,
                                   const std::vector<std::string>& tasks, std::int32_t turns,
                                   std::int32_t max_tokens, const std::function<void()>& look_up) {
  std::vector<pronk::Completion> completions(tasks.size());
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t running = tasks.size();  // guarded by mutex
  std::exception_ptr error;            // guarded by mutex
  std::stop_source stop;

  std::vector<std::jthread> threads;  // joined when they go out of scope
  const auto stop_all = [&](std::exception_ptr reason) {
    const std::lock_guard lock(mutex);
    if (reason && !error) error = std::move(reason);
    stop.request_stop();
  };
  const auto work = [&](std::size_t i) {
    try {
      completions[i] = run_one(scheduler, tasks[i], turns, max_tokens, stop.get_token());
    } catch (const Stopped&) {
    } catch (...) {
      stop_all(std::current_exception());
    }
    const std::lock_guard lock(mutex);
    --running;
    changed.notify_one();
  };

  try {
    for (std::size_t i = 0; i < tasks.size(); ++i) threads.emplace_back(work, i);
    for (;;) {
      look_up();
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, kSlice, [&] { return running == 0; })) break;
    }
  } catch (...) {
    stop_all(std::current_exception());
  }
  threads.clear();
  if (error) std::rethrow_exception(error);
  return completions;
}

}  // namespace agents
