// Continues texts, several at a time. Needs no Python.
// usage: continue_text MODEL.gguf TEXT...
#include <pronk/pronk.h>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL.gguf TEXT...\n", argv[0]);
    return 2;
  }
  try {
    pronk::SchedulerOptions options;
    options.max_concurrent = 2;
    pronk::InferenceScheduler scheduler(options);
    scheduler.init_pool(pronk::InferenceEngine::load(argv[1]));

    pronk::GenerationParams params;
    params.max_tokens = 32;
    params.sampling.temperature = 0;

    // The first is streamed; the others wait for a permit of their own, or run beside it.
    pronk::InferencePermit permit = scheduler.acquire();
    pronk::Generation first = permit.generate(argv[2], params);
    std::vector<pronk::Generation> others;
    for (int i = 3; i < argc; ++i) others.push_back(scheduler.generate(argv[i], params));

    std::printf("%s", argv[2]);
    while (const auto piece = first.next()) {
      std::printf("%s", piece->c_str());
      std::fflush(stdout);
    }
    std::printf("\n");
    permit.release();

    for (std::size_t i = 0; i < others.size(); ++i) {
      std::printf("%s%s\n", argv[3 + i], others[i].result().text.c_str());
    }
  } catch (const pronk::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
