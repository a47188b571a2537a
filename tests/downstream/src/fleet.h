// Many prompts from C++ threads of our own, over a scheduler that Python made.
#pragma once

#include <pronk/pronk.h>

#include <cstdint>
#include <string>
#include <vector>

namespace downstream {

class Fleet {
 public:
  /// `scheduler` has to live as long as the fleet.
  Fleet(pronk::InferenceScheduler& scheduler, std::int32_t n_threads)
      : scheduler_(scheduler), n_threads_(n_threads) {}

  /// Completes all prompts, each with a permit of its own. Needs no GIL. Throws the first error of
  /// any thread, once all of them have ended.
  std::vector<pronk::Completion> run(const std::vector<std::string>& prompts,
                                     std::int32_t max_tokens) const;

 private:
  pronk::InferenceScheduler& scheduler_;
  const std::int32_t n_threads_;
};

}  // namespace downstream
