// An assertion of llama.cpp that fails: an exception where pronk asked for one, else the end, with
// a line that says why.
#include <stdexcept>
#include <string>

#include "check.h"
#include "ggml.h"
#include "llama_asserts.h"

#if !defined(_WIN32)
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#endif

namespace {

struct Counted {
  explicit Counted(int& n) : n_(n) { ++n_; }
  ~Counted() { --n_; }
  int& n_;
};

}  // namespace

#if !defined(_WIN32)

TEST(llama_assert_is_an_exception_in_its_scope) {
  pronk::install_abort_hook();
  int alive = 0;
  const auto fail = [&] {
    const Counted counted(alive);
    ggml_init_params params = {};
    params.mem_size = 1 << 16;
    ggml_context* const context = ggml_init(params);
    struct Free {
      ggml_context* context;
      ~Free() { ggml_free(context); }
    } const guard{context};
    ggml_tensor* const a = ggml_new_tensor_1d(context, GGML_TYPE_F32, 3);
    ggml_tensor* const b = ggml_new_tensor_1d(context, GGML_TYPE_F32, 4);
    ggml_mul_mat(context, a, b);  // from within C
  };
  const pronk::AssertsThrow outer;
  for (int i = 0; i < 3; ++i) {
    {
      const pronk::AssertsThrow inner;
      try {
        fail();
        CHECK(false);
      } catch (const std::runtime_error& error) {
        CHECK(std::string(error.what()).find("GGML_ASSERT(ggml_can_mul_mat") != std::string::npos);
      }
    }
    CHECK_EQ(alive, 0);
    CHECK_THROWS(std::runtime_error, fail());
  }
}

TEST(llama_assert_ends_the_process_elsewhere) {
  pronk::install_abort_hook();
  {
    const pronk::AssertsThrow over;
  }
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGABRT, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    ggml_abort("file.cpp", 7, "%s", "the reason");
  }
  close(ends[1]);
  std::string said;
  char part[256];
  for (ssize_t n; (n = read(ends[0], part, sizeof(part))) > 0;)
    said.append(part, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  CHECK_EQ(said, std::string("pronk: llama.cpp ends the process: file.cpp:7: the reason\n"));
}

#endif
