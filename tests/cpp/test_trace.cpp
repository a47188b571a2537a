// The trace: exact events, since a script decodes and the clock stands still but for its delays.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "decode_rig.h"
#include "pronk/error.h"
#include "trace.h"

namespace {

using namespace std::chrono_literals;
using namespace decode_rig;
using pronk::Trace;
using pronk::TraceEvent;
using pronk::TraceKind;
using pronk::TraceResult;
using pronk::testing::FaultKind;

using Lines = std::vector<std::string>;

/// The lines of the events, without those that name the tracks.
Lines stop(pronk::InferenceScheduler& scheduler) {
  std::ostringstream out;
  scheduler.stop_trace(out);
  std::istringstream text(out.str());
  Lines lines;
  for (std::string line; std::getline(text, line);) {
    if (line.back() == ',') line.pop_back();
    if (line.starts_with("{\"name\":") && line.find("\"ph\":\"M\"") == std::string::npos)
      lines.push_back(line);
  }
  return lines;
}

Lines with(const Lines& lines, const std::string& part) {
  Lines found;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(found),
               [&](const std::string& line) { return line.find(part) != std::string::npos; });
  return found;
}

/// For the eye: without quotes, and without the process, which is always the same.
std::string plain(const Lines& lines) {
  std::string text = "\n";
  for (std::string line : lines) {
    std::erase(line, '"');
    const std::string process = ",pid:1";
    line.erase(line.find(process), process.size());
    text += line + "\n";
  }
  return text;
}

Shape small() {
  Shape shape;
  shape.permits = 1;
  shape.n_batch = 4;
  return shape;
}

}  // namespace

TEST(trace_shows_every_event) {
  Rig rig(small());
  rig.model.set_delay(10ms, 1ms);
  rig.model.script("abcdef", "xyz");
  rig.clock.advance(3s);  // times count from the start of the trace
  rig.scheduler->start_trace();
  CHECK(rig.scheduler->tracing());
  auto first = rig.generate("abcdef", greedy(2));
  auto second = rig.generate("abcdef", greedy(1));
  rig.clock.advance(1500ns);
  CHECK(rig.run());
  CHECK_EQ(text_of(first), "xy");
  CHECK_EQ(text_of(second), "x");
  CHECK_EQ(plain(stop(*rig.scheduler)), R"(
{name:queued,ph:b,ts:0.000,tid:1,cat:queued,id:2,args:{generation:2,prompt_tokens:6,cached_tokens:5}}
{name:queued,ph:e,ts:37001.500,tid:1,cat:queued,id:2}
{name:wait for permit,ph:b,ts:0.000,tid:1,cat:wait for permit,id:1,args:{ticket:1}}
{name:wait for permit,ph:e,ts:37001.500,tid:1,cat:wait for permit,id:1}
{name:queued,ph:b,ts:0.000,tid:1,cat:queued,id:1,args:{generation:1,prompt_tokens:6,cached_tokens:0}}
{name:queued,ph:e,ts:1.500,tid:1,cat:queued,id:1}
{name:wait for permit,ph:b,ts:0.000,tid:1,cat:wait for permit,id:0,args:{ticket:0}}
{name:wait for permit,ph:e,ts:0.000,tid:1,cat:wait for permit,id:0}
{name:permits,ph:C,ts:0.000,args:{active:1,waiting:0}}
{name:permits,ph:C,ts:0.000,args:{active:1,waiting:1}}
{name:generation 1,ph:X,ts:1.500,tid:2,dur:37000.000,args:{generation:1,prompt_tokens:6,cached_tokens:0,completion_tokens:2,result:length}}
{name:prefill,ph:X,ts:1.500,tid:2,dur:14000.000,args:{generation:1,tokens:4,position:0,cached_tokens:0}}
{name:step,ph:X,ts:1.500,tid:1,dur:14000.000,args:{tokens:4,decode_tokens:0,prompt_tokens:4}}
{name:batch,ph:X,ts:1.500,tid:1,dur:14000.000,args:{tokens:4,decode_tokens:0,prompt_tokens:4,context:0}}
{name:prefill,ph:X,ts:14001.500,tid:2,dur:12000.000,args:{generation:1,tokens:2,position:4,cached_tokens:0}}
{name:step,ph:X,ts:14001.500,tid:1,dur:12000.000,args:{tokens:2,decode_tokens:0,prompt_tokens:2}}
{name:batch,ph:X,ts:14001.500,tid:1,dur:12000.000,args:{tokens:2,decode_tokens:0,prompt_tokens:2,context:0}}
{name:pool,ph:C,ts:14001.500,args:{kv_tokens:4,kv_cells:4,cached_sequences:0,running:1}}
{name:decode,ph:X,ts:26001.500,tid:2,dur:11000.000,args:{generation:1,position:6}}
{name:step,ph:X,ts:26001.500,tid:1,dur:11000.000,args:{tokens:1,decode_tokens:1,prompt_tokens:0}}
{name:batch,ph:X,ts:26001.500,tid:1,dur:11000.000,args:{tokens:1,decode_tokens:1,prompt_tokens:0,context:0}}
{name:sample,ph:X,ts:26001.500,tid:1,dur:0.000,args:{rows:1,context:0}}
{name:pool,ph:C,ts:26001.500,args:{kv_tokens:6,kv_cells:6,cached_sequences:0,running:1}}
{name:generation 2,ph:X,ts:37001.500,tid:3,dur:11000.000,args:{generation:2,prompt_tokens:6,cached_tokens:5,completion_tokens:1,result:length}}
{name:prefill,ph:X,ts:37001.500,tid:3,dur:11000.000,args:{generation:2,tokens:1,position:5,cached_tokens:5}}
{name:step,ph:X,ts:37001.500,tid:1,dur:11000.000,args:{tokens:1,decode_tokens:0,prompt_tokens:1}}
{name:batch,ph:X,ts:37001.500,tid:1,dur:11000.000,args:{tokens:1,decode_tokens:0,prompt_tokens:1,context:0}}
{name:sample,ph:X,ts:37001.500,tid:1,dur:0.000,args:{rows:1,context:0}}
{name:permits,ph:C,ts:37001.500,args:{active:1,waiting:0}}
{name:pool,ph:C,ts:37001.500,args:{kv_tokens:7,kv_cells:7,cached_sequences:1,running:0}}
{name:sample,ph:X,ts:48001.500,tid:1,dur:0.000,args:{rows:1,context:0}}
{name:permits,ph:C,ts:48001.500,args:{active:0,waiting:0}}
{name:pool,ph:C,ts:48001.500,args:{kv_tokens:13,kv_cells:8,cached_sequences:2,running:0}}
)");
  CHECK(!rig.scheduler->tracing());
}

TEST(trace_marks_what_was_cancelled_and_what_failed) {
  Rig rig(small());
  rig.scheduler->start_trace();
  auto held = rig.scheduler->acquire();
  auto queued = rig.generate("queued", greedy(4));
  CHECK_THROWS(pronk::AcquireTimeout, rig.scheduler->acquire(0ns));
  queued.cancel();
  auto cancelled = held.generate("abc", greedy(4));
  rig.loop->step();
  cancelled.cancel();
  CHECK(rig.run());
  rig.model.add_fault({.kind = FaultKind::kFailed, .times = 2});
  auto failed = held.generate("xyz", greedy(4));
  CHECK(rig.run());
  CHECK_THROWS(pronk::BackendError, failed.result());
  auto waiting = rig.generate("w", greedy(1));
  rig.scheduler->close();
  const Lines lines = stop(*rig.scheduler);
  CHECK_EQ(with(lines, "queued (cancelled)").size(), 2u);  // begin and end
  CHECK_EQ(with(lines, "wait for permit (timed_out)").size(), 2u);
  CHECK_EQ(with(lines, "wait for permit (cancelled)").size(), 2u);
  CHECK_EQ(with(lines, "wait for permit (closed)").size(), 2u);
  CHECK_EQ(with(lines, "generation 2 (cancelled)").size(), 1u);
  CHECK_EQ(with(lines, "generation 3 (failed)").size(), 1u);
  CHECK_EQ(with(lines, "batch (failed)").size(), 2u);
  CHECK_EQ(with(lines, "prefill (failed)").size(), 2u);
  // Closed in the queue: it failed there.
  CHECK_EQ(with(lines, "queued (failed)").size(), 2u);
}

TEST(trace_of_what_still_runs) {
  Rig rig(small());
  rig.model.set_delay(1ms);
  auto before = rig.generate("ab", greedy(9));
  rig.loop->step();
  rig.scheduler->start_trace();
  rig.loop->step();
  before.cancel();
  CHECK(rig.run());
  auto after = rig.generate("ab", greedy(9));
  rig.loop->step();
  rig.clock.advance(5ms);
  const Lines lines = stop(*rig.scheduler);
  // What began earlier is cut off at the start of the trace, what still runs at its end.
  CHECK_EQ(with(lines, "\"generation 1 (cancelled)\",\"ph\":\"X\",\"ts\":0.000").size(), 1u);
  CHECK_EQ(with(lines, "\"generation 2\",\"ph\":\"X\",\"ts\":1000.000"),
           (Lines{"{\"name\":\"generation 2\",\"ph\":\"X\",\"ts\":1000.000,\"pid\":1,\"tid\":3,"
                  "\"dur\":6000.000,\"args\":{\"generation\":2,\"prompt_tokens\":2,"
                  "\"cached_tokens\":1,\"result\":\"running\"}}"}));
  CHECK(rig.run());
  CHECK_THROWS(pronk::InvalidArgumentError, stop(*rig.scheduler));
}

TEST(trace_tracks_of_lanes_do_not_overlap) {
  const std::uint64_t seed = check::seed();
  over_all([&](const Shape& shape) {
    std::uint64_t state = seed;
    const auto up_to = [&](std::uint64_t n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<int>((state >> 33) % n);
    };
    Rig rig(shape);
    rig.model.set_delay(2ms, 1ms);
    Trace& trace = *rig.state->trace;
    trace.start(1 << 16);
    std::vector<Generation> generations;
    for (int i = 0; i < 40; ++i) {
      generations.push_back(rig.generate(std::string(static_cast<std::size_t>(1 + up_to(40)), 'a'),
                                         greedy(up_to(9))));
      for (int steps = up_to(4); steps > 0; --steps) rig.loop->step();
      if (up_to(4) == 0) generations[static_cast<std::size_t>(up_to(i + 1))].cancel();
      rig.clock.advance(std::chrono::milliseconds(up_to(3)));
    }
    CHECK(rig.run());
    auto events = trace.stop().events;
    const auto s = rig.scheduler->statistics();
    std::uint64_t evaluated = 0;
    std::uint64_t ended = 0;
    std::uint64_t steps = 0;
    for (const TraceEvent& event : events) {
      CHECK(event.begin <= event.end);
      if (event.kind == TraceKind::kPrefill) evaluated += static_cast<unsigned>(event.values[0]);
      if (event.kind == TraceKind::kDecode) ++evaluated;
      if (event.kind == TraceKind::kStep) ++steps;
      if (event.kind == TraceKind::kGeneration) ++ended;
      if (event.kind == TraceKind::kQueued && event.result != TraceResult::kNone) ++ended;
    }
    CHECK_EQ(evaluated, s.evaluated_tokens);
    CHECK_EQ(steps, s.steps);
    CHECK_EQ(ended, 40u);
    // Each chunk lies within its generation; generations of one lane follow one another.
    for (const TraceEvent& outer : events) {
      if (outer.kind != TraceKind::kGeneration) continue;
      for (const TraceEvent& inner : events) {
        if (&inner == &outer || inner.track != outer.track) continue;
        if (inner.kind == TraceKind::kGeneration) {
          CHECK(inner.end <= outer.begin || outer.end <= inner.begin);
        } else if ((inner.kind == TraceKind::kPrefill || inner.kind == TraceKind::kDecode) &&
                   inner.number == outer.number) {
          CHECK(outer.begin <= inner.begin && inner.end <= outer.end);
        }
      }
    }
  });
}

TEST(trace_keeps_the_last_events) {
  pronk::testing::ManualClock clock;
  Trace trace(clock.clock());
  trace.add(TraceEvent{});
  CHECK(!trace.on());
  for (const std::size_t most : {std::size_t{1}, std::size_t{10}, std::size_t{5000}}) {
    for (const std::size_t n : {std::size_t{0}, most - 1, most, most + 1, 3 * most + 7}) {
      trace.start(most);
      for (std::size_t i = 0; i < n; ++i) trace.add({TraceKind::kWait, {}, 0, {}, {}, i});
      const auto recording = trace.stop();
      const std::size_t kept = std::min(n, most);
      REQUIRE(CHECK_EQ(recording.events.size(), kept));
      CHECK_EQ(recording.dropped, n - kept);
      for (std::size_t i = 0; i < kept; ++i) CHECK_EQ(recording.events[i].number, n - kept + i);
    }
  }
  CHECK_THROWS(pronk::InvalidArgumentError, trace.start(0));
  CHECK_THROWS(pronk::InvalidArgumentError, trace.start(Trace::kMaxEvents + 1));
  CHECK_THROWS(pronk::InvalidArgumentError, trace.stop());
  trace.start(1);
  CHECK_THROWS(pronk::InvalidArgumentError, trace.start(1));
}

TEST(trace_starts_and_stops_while_threads_record) {
  Trace trace(pronk::Clock::steady());
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!end) {
        const auto now = trace.now();
        if (trace.on()) trace.add({TraceKind::kWait, {}, 0, now, now, 42});
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    trace.start(100);
    std::this_thread::yield();
    for (const auto& event : trace.stop().events) CHECK_EQ(event.number, 42u);
  }
  end = true;
  for (auto& thread : threads) thread.join();
}

TEST(statistics_count_a_shared_cell_once) {
  for (const bool shared : {true, false}) {
    Shape shape;
    shape.layout = {"batched", shared ? "shared" : "split"};
    Rig rig(shape);
    std::vector<Generation> generations;
    const std::string system = "a system prompt of 29 tokens.";
    for (const char c : {'A', 'B', 'C'}) {
      generations.push_back(rig.generate(system + c, greedy(2)));
      CHECK(rig.run());
    }
    const auto s = rig.scheduler->statistics();
    CHECK_EQ(s.kv_tokens, 3u * 31);  // of two tokens said, the last is not evaluated
    CHECK_EQ(s.kv_cells, shared ? 29u + 3 * 2 : 3u * 31);
    CHECK_EQ(s.cached_sequences, 3);
    CHECK_EQ(s.prefix_hits, 2u);
    CHECK_EQ(s.reused_tokens, 2u * 29);
  }
}

TEST(statistics_tokens_per_step) {
  Rig rig(small());
  CHECK_EQ(rig.scheduler->statistics().step_tokens_mean, 0.0);
  auto generation = rig.generate("abcdef", greedy(2));
  CHECK(rig.run());
  const auto s = rig.scheduler->statistics();
  CHECK_EQ(s.steps, 3u);  // 4, 2, and the first token said
  CHECK_EQ(s.step_tokens_max, 4);
  CHECK_EQ(s.step_tokens_mean, 7.0 / 3);
}
