// The decode loop under everything at once, in random order.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "decode_rig.h"
#include "pronk/error.h"

namespace {

using namespace decode_rig;
using pronk::FinishReason;
using pronk::testing::Fault;
using pronk::testing::FaultKind;
using pronk::testing::FaultPoint;

}  // namespace

TEST(loop_random_interleavings) {
  const std::uint64_t seed = check::seed();
  std::mt19937_64 random(seed);
  const auto up_to = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 40; ++round) {
    Shape shape;
    shape.kind = kAllKinds[up_to(4)];
    shape.layout = kAllLayouts[up_to(3)];
    shape.permits = 1 + up_to(5);
    shape.n_ctx = 24 + up_to(60);
    shape.n_batch = 1 + up_to(24);
    shape.n_cached = up_to(5);
    const bool faulty = up_to(2) == 0;
    Rig rig(shape);
    struct Request {
      std::string prompt;
      int n;
      Generation generation;
    };
    std::vector<Request> requests;
    const std::string stems[] = {"", "common system ", "common system prompt for all ", "else "};
    for (int step = 0; step < 300; ++step) {
      if (requests.size() < 40 && up_to(4) == 0) {
        std::string prompt = stems[up_to(4)];
        for (int i = up_to(6) + 1; i > 0; --i) prompt += static_cast<char>('a' + up_to(2));
        if (static_cast<int>(prompt.size()) >= shape.n_ctx) continue;
        auto params = greedy(up_to(20));
        params.cache = up_to(6) != 0;
        params.cache_scope = up_to(6) == 0 ? "other" : "";
        auto generation = rig.generate(prompt, params);
        requests.push_back({prompt, *params.max_tokens, std::move(generation)});
      }
      if (!requests.empty() && up_to(12) == 0)
        requests[random() % requests.size()].generation.cancel();
      if (faulty && up_to(10) == 0) {
        constexpr FaultKind kinds[] = {
            FaultKind::kNoSlot,       FaultKind::kAborted,  FaultKind::kInvalidBatch,
            FaultKind::kNoMemory,     FaultKind::kFailed,   FaultKind::kNanLogits,
            FaultKind::kRuntimeError, FaultKind::kBadAlloc, FaultKind::kForeignException};
        Fault fault{.kind = kinds[up_to(9)], .times = 1 + up_to(2)};
        if (fault.kind != FaultKind::kNoSlot && fault.kind != FaultKind::kInvalidBatch)
          fault.applied = up_to(6);
        rig.model.add_fault(fault);
      }
      if (faulty && up_to(30) == 0)
        rig.model.add_fault({.point = FaultPoint::kSeqRemove, .kind = FaultKind::kReturnFalse});
      rig.loop->step();
      if (up_to(20) == 0) rig.model.clear_faults();
      rig.check_sound();
    }
    rig.model.clear_faults();
    CHECK(rig.run());
    for (const Request& request : requests) {
      REQUIRE(request.generation.done());
      const int room = shape.n_ctx - static_cast<int>(request.prompt.size());
      const std::string whole = rig.expected(request.prompt, std::min(request.n, room));
      const std::string said = request.generation.text();
      bool complete = false;
      try {
        complete = request.generation.result().finish_reason != FinishReason::kCancelled;
      } catch (const pronk::BackendError&) {
        CHECK(faulty);
      }
      if (!CHECK_EQ(said, complete ? whole : whole.substr(0, said.size()))) return;
    }
    rig.check_quiet();
  }
}
