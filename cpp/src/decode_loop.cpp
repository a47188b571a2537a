// The thread, its inbox and its end. What a step does is in decode_step.cpp.
#include "decode_loop.h"

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "pronk/error.h"
#include "signals_blocked.h"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace pronk::inline v0 {
namespace {

void name_this_thread() {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), "pronk-decode");
#elif defined(__APPLE__)
  pthread_setname_np("pronk-decode");
#endif
}

// A backend may throw anything; what leaves the constructor is an Error.
std::unique_ptr<Backend> make_context(const LoopOptions& options, std::int32_t number) {
  try {
    return options.make_context(number);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw InsufficientMemoryError(
        "init_pool: got no memory for a context, expected more, lower n_ctx or max_concurrent");
  } catch (const std::exception& e) {
    throw BackendError(std::string("init_pool: got ") + e.what() +
                       ", expected a new context, try again");
  } catch (...) {
    throw BackendError("init_pool: got an unknown exception, expected a new context, try again");
  }
}

}  // namespace

DecodeLoop::DecodeLoop(const LoopOptions& options, std::shared_ptr<InferenceEngine> engine,
                       std::shared_ptr<Clock> clock, std::shared_ptr<Trace> trace)
    : options_(options),
      engine_(std::move(engine)),
      clock_(std::move(clock)),
      trace_(std::move(trace)),
      workers_(static_cast<std::size_t>(options.n_sampling_threads)),
      errands_(static_cast<std::size_t>(options.n_sampling_threads)) {
  std::vector<Backend*> contexts;
  for (std::int32_t i = 0; i < options_.n_contexts; ++i) {
    contexts_.push_back(make_context(options_, i));
    contexts.push_back(contexts_.back().get());
    add_contexts(memory_, contexts_.back()->memory());
    policies_.emplace_back(options_.policy);
  }
  const ModelInfo& model = engine_->info();
  SequencePoolOptions pool{model.memory_kind, model.n_swa};
  if (options_.exact_reuse) pool.exact_chunk = options_.policy.n_batch;
  pool.max_idle_tokens = options_.max_idle_tokens;
  if (options_.consecutive_lanes) pool.n_lanes = options_.n_lanes;
  pool.share_cells = options_.share_cells && model.memory_kind != MemoryKind::kRecurrent;
  if (options_.adapt_threads) governor_.emplace(options_.n_threads);
  sequences_ = std::make_unique<SequencePool>(std::move(contexts), pool);
}

DecodeLoop::~DecodeLoop() = default;

void DecodeLoop::start() {
  std::lock_guard lock(inbox_mutex_);
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([self = shared_from_this()] { self->run(); });
  } catch (const std::system_error& e) {
    throw BackendError(std::string("decode thread: got ") + e.what() +
                       ", expected a new thread, raise the limit on threads");
  }
}

bool DecodeLoop::submit(std::shared_ptr<GenerationState> generation) {
  std::lock_guard lock(inbox_mutex_);
  if (stop_) return false;
  live_.insert(generation);
  inbox_.push_back(std::move(generation));
  inbox_changed_.notify_one();
  return true;
}

void DecodeLoop::interrupt() {
  if (process_.forked()) return;
  {
    std::lock_guard lock(decode_mutex_);
    if (decoding_ != nullptr &&
        std::all_of(in_decode_.begin(), in_decode_.end(),
                    [](const GenerationState* g) { return g->cancel_requested(); })) {
      decoding_->abort(true);
    }
  }
  std::lock_guard lock(inbox_mutex_);
  poked_ = true;
  inbox_changed_.notify_one();
}

void DecodeLoop::run() {
  name_this_thread();
  for (;;) {
    {
      std::unique_lock lock(inbox_mutex_);
      inbox_changed_.wait(lock, [this] {
        return stop_ || poked_ || !inbox_.empty() || !runs_.empty() || !waiting_.empty();
      });
      poked_ = false;
      if (stop_) break;
    }
    if (!busy_.load(std::memory_order_relaxed)) {
      progress_ns_.store(clock_->now().time_since_epoch().count(), std::memory_order_relaxed);
      busy_.store(true, std::memory_order_relaxed);
    }
    step();
    if (runs_.empty() && waiting_.empty()) busy_.store(false, std::memory_order_relaxed);
  }
  end_all(nullptr);
  for (std::int32_t c = 0; c < options_.n_contexts; ++c) free_context(c);
  publish(-1);
  std::lock_guard lock(inbox_mutex_);
  ended_ = true;
  thread_ended_.notify_all();
}

// Everything ends as cancelled, or with the error.
void DecodeLoop::end_all(std::exception_ptr error) {
  auto unstarted = std::exchange(waiting_, {});
  {
    std::lock_guard lock(inbox_mutex_);
    unstarted.insert(unstarted.end(), inbox_.begin(), inbox_.end());
    inbox_.clear();
  }
  for (const auto& generation : unstarted) end_unstarted(generation, error);
  while (!runs_.empty()) end_run(*runs_.back(), FinishReason::kCancelled, error);
  publish(-1);
  ring_mailboxes();
}

void DecodeLoop::request_stop() {
  {
    std::lock_guard lock(inbox_mutex_);
    stop_ = true;
    inbox_changed_.notify_all();
  }
  std::lock_guard lock(decode_mutex_);
  abort_all_ = true;
  if (decoding_ != nullptr) decoding_->abort(true);
}

bool DecodeLoop::stop(Duration timeout, const std::function<void()>& look_up) {
  request_stop();
  std::unique_lock lock(inbox_mutex_);
  if (!thread_.joinable()) {
    const bool by_hand = !ended_;
    ended_ = true;
    const bool in_time = !given_up_;
    lock.unlock();
    if (by_hand) {
      end_all(nullptr);
      for (std::int32_t c = 0; c < options_.n_contexts; ++c) free_context(c);
    }
    return in_time;
  }
  const RealTime deadline = real_time_after(timeout);
  while (!ended_ && std::chrono::steady_clock::now() < deadline) {
    thread_ended_.wait_until(lock, std::min(deadline, real_time_after(kLookUpEvery)));
    if (!look_up || ended_) continue;
    lock.unlock();
    look_up();
    lock.lock();
  }
  const bool in_time = ended_;
  std::thread thread = std::move(thread_);
  if (in_time) {
    const bool given_up = given_up_;
    lock.unlock();
    if (thread.joinable()) thread.join();
    return !given_up;
  }
  // The thread is stuck in a native call. It keeps this object alive; who waits for its generations
  // must not hang.
  if (thread.joinable()) thread.detach();
  ended_ = given_up_ = true;
  thread_ended_.notify_all();
  const auto stuck = std::exchange(live_, {});
  lock.unlock();
  const auto error = std::make_exception_ptr(BackendError(
      "close: got a decode step that does not end, expected it to end within the timeout, "
      "the generation was given up"));
  for (const auto& generation : stuck) {
    if (const auto mailbox = generation->fail(error)) mailbox->ring();
  }
  return false;
}

void DecodeLoop::fill(Statistics& out) const {
  Counters c;
  StepTimes times;
  {
    std::lock_guard lock(published_mutex_);
    c = published_;
    times = step_times_;
  }
  const auto [p50, p99, longest] = times.quantiles(std::array<double, 3>{0.5, 0.99, 1.0});
  out.n_lanes = options_.n_lanes;
  out.n_ctx = options_.n_ctx;
  out.kv = options_.kv;
  out.kv_reason = options_.kv_reason;
  out.flash_attention = options_.flash_attention;
  out.flash_attention_reason = options_.flash_attention_reason;
  out.type_k = options_.type_k;
  out.type_v = options_.type_v;
  out.kv_type_reason = options_.kv_type_reason;
  out.n_ctx_reason = options_.n_ctx_reason;
  out.n_cached = options_.n_cached;
  out.n_cached_reason = options_.n_cached_reason;
  for (const DeviceMemory& device : memory_) out.memory_bytes += device.pool();
  out.running = c.running;
  out.cached_sequences = c.cached_sequences;
  out.kv_tokens = c.kv_tokens;
  out.kv_cells = c.kv_cells;
  out.generations = c.generations;
  out.completed = c.completed;
  out.cancelled = c.cancelled;
  out.failed = c.failed;
  out.prompt_tokens = c.prompt_tokens;
  out.reused_tokens = c.reuse.reused;
  out.evaluated_tokens = c.evaluated;
  out.completion_tokens = c.completion_tokens;
  out.prefix_hits = c.reuse.hits;
  out.reuse_refused = c.reuse.refused;
  out.reuse_refused_reason = c.reuse.refused_reason;
  out.steps = c.steps;
  out.step_tokens_mean = times.mean_tokens();
  out.step_tokens_max = times.most_tokens();
  out.step_seconds_p50 = p50;
  out.step_seconds_p99 = p99;
  out.step_seconds_max = longest;
  out.n_threads = c.n_threads;
  out.healthy = c.healthy;
  if (busy_.load(std::memory_order_relaxed)) {
    const TimePoint since{Duration{progress_ns_.load(std::memory_order_relaxed)}};
    out.seconds_since_progress = std::max(0.0, to_seconds(clock_->now() - since));
  }
}

}  // namespace pronk::inline v0
