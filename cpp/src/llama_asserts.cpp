#include "llama_asserts.h"

#include <exception>
#include <stdexcept>
#include <string_view>

#include "ggml.h"

#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace pronk::inline v0 {
namespace {

thread_local bool asserts_throw = false;

// ggml ends the process when it returns. What is thrown passes through C, which llama.cmake has
// compiled so that it can.
void on_abort(const char* message) {
  // One that fails while another is on its way, as in a destructor, would end the process anyway.
  if (asserts_throw && std::uncaught_exceptions() == 0) throw std::runtime_error(message);
#if !defined(_WIN32)
  constexpr std::string_view prefix = "pronk: llama.cpp ends the process: ";
  for (const std::string_view part : {prefix, std::string_view(message), std::string_view("\n")}) {
    if (write(STDERR_FILENO, part.data(), part.size()) < 0) return;
  }
#endif
}

}  // namespace

AssertsThrow::AssertsThrow() noexcept : outer_(asserts_throw) { asserts_throw = true; }

AssertsThrow::~AssertsThrow() { asserts_throw = outer_; }

void install_abort_hook() {
#if !defined(_WIN32)
  ggml_set_abort_callback(on_abort);
#endif
}

}  // namespace pronk::inline v0
