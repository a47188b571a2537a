// Many threads on one scheduler over a scripted model, in real time: what no single thread can
// show. Meant for a build with -fsanitize=thread, or address and undefined. stress [--seed N]
// [--rounds K]
#include <poll.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "pronk/error.h"
#include "pronk/scheduler.h"
#include "pronk/testing.h"

namespace {

using namespace std::chrono_literals;
using pronk::FinishReason;
using pronk::Generation;
using pronk::GenerationParams;
using pronk::InferencePermit;
using pronk::InferenceScheduler;
using pronk::MemoryKind;
using pronk::StreamStatus;
using pronk::Ticket;
using pronk::TicketStatus;
using pronk::Token;
using pronk::testing::FaultKind;
using pronk::testing::ScriptedModel;
using pronk::testing::ScriptedOptions;
using Tokens = std::vector<Token>;
using Random = std::mt19937_64;

constexpr int kThreads = 6;
constexpr int kActions = 60;  // of each thread and round
constexpr int kLetters = 8;
constexpr auto kHangGuard = 120s;

std::uint64_t program_seed = 0;
std::uint64_t round_seed = 0;

[[noreturn]] void fail(const std::string& what) {
  std::printf("FAILED with --seed %llu --rounds 1\n%s\n",
              static_cast<unsigned long long>(round_seed), what.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

void check(bool good, const char* what) {
  if (!good) fail(what);
}

/// One scheduler's life.
class Round {
 public:
  explicit Round(std::uint64_t seed) : random_(seed) {
    ScriptedOptions options;
    for (char c = 'a'; c < 'a' + kLetters; ++c) options.pieces.emplace_back(1, c);
    constexpr MemoryKind kinds[] = {MemoryKind::kPlain, MemoryKind::kSlidingWindow,
                                    MemoryKind::kRecurrent, MemoryKind::kHybrid};
    options.memory_kind = kinds[random_() % 4];
    if (options.memory_kind == MemoryKind::kSlidingWindow) options.n_swa = 5;
    model_ = std::make_unique<ScriptedModel>(options);
    pronk::SchedulerOptions gate;
    gate.max_concurrent = permits_ = static_cast<int>(1 + random_() % 4);
    if (random_() % 3 == 0) gate.max_waiting = 2;
    gate.ageing_seconds = 0.001;
    scheduler_ = std::make_unique<InferenceScheduler>(gate);
    pronk::PoolOptions pool;
    pool.layout = random_() % 2 == 0 ? "isolated" : "batched";
    pool.n_ctx = 64;
    pool.n_batch = 8;
    pool.n_cached = 3;
    // Half of the time at the first use, which then happens in several threads at once.
    if (random_() % 2 == 0) {
      scheduler_->init_pool(model_->engine(), pool);
    } else {
      scheduler_->set_pool(model_->engine(), pool);
    }
    faults_ = random_() % 3 == 0;
    model_->set_delay(std::chrono::microseconds(random_() % 40));
    if (faults_) {
      model_->add_fault({.kind = FaultKind::kRuntimeError, .call = 20});
      model_->add_fault({.kind = FaultKind::kFailed, .call = 40, .times = 2, .applied = 1});
      model_->add_fault({.kind = FaultKind::kInvalidBatch, .call = 60});
    }
  }

  void run() {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([this, seed = random_()] {
        Random random(seed);
        try {
          for (int i = 0; i < kActions; ++i) act(random);
        } catch (const pronk::SchedulerClosedError&) {
          check(closing_, "a call said closed while the scheduler was open");
        } catch (const std::exception& error) {
          fail(std::string("a thread got: ") + error.what());
        }
      });
    }
    const bool early = random_() % 2 == 0;
    const bool drain = random_() % 2 == 0;
    if (early) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 20000));
    } else {
      for (auto& thread : threads) thread.join();
    }
    closing_ = true;
    std::thread second(
        [&] { check(scheduler_->close(false, kHangGuard), "the second close() ran out of time"); });
    check(scheduler_->close(drain, kHangGuard), "close() ran out of time");
    second.join();
    if (early) {
      for (auto& thread : threads) thread.join();
    }
    const auto s = scheduler_->statistics();
    check(s.active == 0 && s.waiting == 0, "somebody holds or waits at the end");
    check(s.acquired == s.released, "a permit was lost or doubled");
    check(s.high_water <= permits_, "more permits were held than there are");
    check(s.generations == s.completed + s.cancelled + s.failed, "a generation has no end, or two");
    check(faults_ || s.failed == 0, "a generation failed");
    check(model_->violations().empty(), "the model was misused");
    scheduler_.reset();
    shared_.reset();
    check(model_->counters().backends_alive == 0, "a context is left");
  }

 private:
  struct Request {
    Tokens prompt;
    GenerationParams params;
    std::string whole;
  };

  Request draw(Random& random) {
    Request request;
    for (std::uint64_t i = random() % 20; i > 0; --i)
      request.prompt.push_back(static_cast<Token>(i % kLetters));
    request.prompt.push_back(static_cast<Token>(random() % kLetters));
    request.params.sampling.temperature = 0;
    request.params.max_tokens = static_cast<int>(random() % 20);
    for (const Token token : model_->expected(request.prompt, *request.params.max_tokens)) {
      request.whole += static_cast<char>('a' + token);
    }
    return request;
  }

  /// Reads a generation in one of all ways and checks what it says.
  void consume(Generation& generation, const Request& request, Random& random,
               bool others_may_cancel) {
    std::string said;
    bool asked = others_may_cancel;
    try {
      switch (random() % 5) {
        case 0:
          break;
        case 1:
          while (auto piece = generation.next()) said += *piece;
          check(said == request.whole, "the stream is not what the model says");
          break;
        case 2: {
          std::string piece;
          const auto end = std::chrono::steady_clock::now() + kHangGuard;
          StreamStatus status;
          while ((status = generation.next_for(piece, 100us)) != StreamStatus::kEnd) {
            if (status == StreamStatus::kPiece) said += piece;
            check(std::chrono::steady_clock::now() < end, "a stream stands still");
          }
          check(said == request.whole, "the stream is not what the model says");
          break;
        }
        case 3:
          wait_by_mailbox(generation);
          break;
        default:
          asked = true;
          if (random() % 2 == 0) std::this_thread::yield();
          generation.cancel();
      }
      const auto done = generation.result();
      if (done.finish_reason == FinishReason::kCancelled) {
        check(asked || closing_, "a generation was cancelled, nobody asked for it");
        check(request.whole.starts_with(done.text), "the text is not what the model says");
      } else {
        check(done.text == request.whole, "the text is not what the model says");
      }
    } catch (const pronk::GenerationCancelled&) {
      check(asked || closing_, "a stream was cancelled, nobody asked for it");
    } catch (const pronk::BackendError&) {
      check(faults_, "a generation failed without a fault");
    }
  }

  // As an event loop does: sleeps on the descriptor alone.
  static void wait_by_mailbox(Generation& generation) {
    const auto mailbox = std::make_shared<pronk::Mailbox>();
    generation.listen({mailbox, 7});
    while (!generation.done()) {
      sleep_on(*mailbox, "a generation");
      std::string piece;
      try {
        generation.next_for(piece, 0ns);
      } catch (const pronk::Error&) {
      }
    }
  }

  static void sleep_on(pronk::Mailbox& mailbox, const char* what) {
    pollfd fd{mailbox.fd(), POLLIN, 0};
    if (poll(&fd, 1, 120000) != 1) fail(std::string("the bell of ") + what + " does not ring");
    mailbox.drain();
  }

  struct Inside {
    explicit Inside(std::atomic<int>& counter) : count(counter) { ++count; }
    ~Inside() { --count; }
    std::atomic<int>& count;
  };

  void use(InferencePermit permit, Random& random) {
    {
      const Inside inside(inside_);
      check(inside_ <= permits_, "more permits are held than there are");
      for (std::uint64_t i = random() % 3; i > 0; --i) {
        const Request request = draw(random);
        auto generation = permit.generate(request.prompt, request.params);
        if (random() % 6 == 0) break;  // both are dropped while it runs
        consume(generation, request, random, false);
      }
    }
    if (random() % 2 == 0) permit.release();
  }

  void act(Random& random) {
    pronk::AcquireOptions options;
    options.priority = static_cast<int>(random() % 5);
    try {
      switch (random() % 8) {
        case 0:
          use(scheduler_->acquire(std::nullopt, options), random);
          break;
        case 1:
          use(scheduler_->acquire(std::chrono::microseconds(random() % 500), options), random);
          break;
        case 2:
          if (auto permit = scheduler_->try_acquire()) use(std::move(*permit), random);
          break;
        case 3: {
          // A task: it looks at its mailbox, may lose patience, may never look at all.
          const auto mailbox = std::make_shared<pronk::Mailbox>();
          Ticket ticket = scheduler_->enqueue(options);
          ticket.listen({mailbox, 1});
          if (random() % 3 == 0) break;
          if (random() % 3 == 0) {
            ticket.cancel(random() % 2 == 0);
            break;
          }
          sleep_on(*mailbox, "a ticket");
          check(ticket.status() != TicketStatus::kWaiting, "a ticket rang while it waits");
          use(ticket.take(), random);
          break;
        }
        case 4:
        case 5: {
          const Request request = draw(random);
          auto generation = scheduler_->generate(request.prompt, request.params, options.priority);
          if (random() % 6 != 0) consume(generation, request, random, false);
          break;
        }
        case 6: {
          // A generation that several threads know: one may cancel or read what another started.
          const Request request = draw(random);
          auto mine =
              std::make_shared<Generation>(scheduler_->generate(request.prompt, request.params));
          std::shared_ptr<Generation> other;
          {
            const std::lock_guard lock(shared_mutex_);
            other = std::exchange(shared_, mine);
          }
          if (other && random() % 2 == 0) other->cancel();
          consume(*mine, request, random, true);
          break;
        }
        default:
          scheduler_->statistics();
          if (random() % 4 == 0)
            scheduler_->resize(static_cast<int>(1 + random() % static_cast<unsigned>(permits_)));
      }
    } catch (const pronk::AcquireTimeout&) {
    } catch (const pronk::QueueFullError&) {
    } catch (const pronk::InvalidArgumentError& error) {
      // A pool that came to be while the number was lower has no more lanes than that.
      check(std::string_view(error.what()).starts_with("max_concurrent"), error.what());
    }
  }

  Random random_;
  std::unique_ptr<ScriptedModel> model_;
  std::unique_ptr<InferenceScheduler> scheduler_;
  int permits_ = 0;
  bool faults_ = false;
  std::atomic<bool> closing_{false};
  std::atomic<int> inside_{0};
  std::mutex shared_mutex_;
  std::shared_ptr<Generation> shared_;  // guarded by shared_mutex_
};

bool parse(std::string_view text, std::uint64_t& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stop == text.data() + text.size();
}

}  // namespace

int main(int argc, char** argv) {
  program_seed = std::random_device{}();
  std::uint64_t rounds = 40;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    std::uint64_t* value = name == "--seed"     ? &program_seed
                           : name == "--rounds" ? &rounds
                                                : nullptr;
    if (value == nullptr || i + 1 == argc || !parse(argv[i + 1], *value)) {
      std::fprintf(stderr, "usage: %s [--seed N] [--rounds K]\n", argv[0]);
      return 2;
    }
  }
  for (std::uint64_t i = 0; i < rounds; ++i) {
    round_seed = program_seed + i;
    Round(round_seed).run();
  }
  std::printf("seeds %llu to %llu, %d threads each: ok\n",
              static_cast<unsigned long long>(program_seed),
              static_cast<unsigned long long>(program_seed + rounds - 1), kThreads);
  return 0;
}
