#include "fleet.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace downstream {

std::vector<pronk::Completion> Fleet::run(const std::vector<std::string>& prompts,
                                          std::int32_t max_tokens) const {
  pronk::GenerationParams params;
  params.max_tokens = max_tokens;
  params.sampling.temperature = 0;

  std::vector<pronk::Completion> completions(prompts.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;  // guarded by mutex

  auto work = [&] {
    try {
      for (std::size_t i = next++; i < prompts.size(); i = next++) {
        pronk::InferencePermit permit = scheduler_.acquire();
        completions[i] = permit.generate(prompts[i], params).result();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::int32_t i = 0; i < n_threads_; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return completions;
}

}  // namespace downstream
