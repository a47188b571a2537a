#include "gil.h"

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "bindings.h"

namespace pronk::bindings {
namespace {

std::atomic<unsigned long> main_thread{0};
std::atomic<bool> exiting{false};
/// Threads between the look at `exiting` and holding the GIL.
std::atomic<int> attaching{0};

[[noreturn]] void sleep_until_process_ends() noexcept {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(24));
}

// From its return on, no thread but the main one takes the GIL through DetachGil.
void begin_exit() {
  exiting = true;
  DetachGil detached;
  // Whoever looked at `exiting` before it was set gets the GIL now, as nobody holds it. The limit
  // is for a thread that computes without ever letting the GIL go.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (attaching > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

void DetachGil::attach() noexcept {
  ++attaching;
  if (exiting && !is_main_thread()) {
    --attaching;
    sleep_until_process_ends();
  }
  PyEval_RestoreThread(state_);
  state_ = nullptr;
  --attaching;
}

bool is_main_thread() noexcept { return PyThread_get_thread_ident() == main_thread; }

void bind_exit(nb::module_& m) {
  const nb::object thread = nb::module_::import_("threading").attr("main_thread")();
  main_thread = nb::cast<unsigned long>(thread.attr("ident"));

  m.def("begin_exit", &begin_exit, "Keep other threads from entering the interpreter again.");
  m.def(
      "expect_leaks", [] { nb::set_leak_warnings(false); },
      "Be quiet about objects that outlive the interpreter.");
}

}  // namespace pronk::bindings
