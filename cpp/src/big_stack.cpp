#include "big_stack.h"

#include <exception>
#include <string>

#include "pronk/error.h"
#include "signals_blocked.h"

#if defined(_WIN32)
#include <thread>
#else
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace pronk::inline v0 {
namespace {

struct Job {
  const std::function<void()>* function;
  std::exception_ptr error;
};

void* run(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  try {
    (*job.function)();
  } catch (...) {
    job.error = std::current_exception();
  }
  return nullptr;
}

#if !defined(_WIN32)

class Stack {
 public:
  explicit Stack(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    size_ = (bytes + page - 1) / page * page + page;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#if defined(MAP_NORESERVE)
    flags |= MAP_NORESERVE;
#endif
#if defined(MAP_STACK)
    flags |= MAP_STACK;
#endif
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory_ == MAP_FAILED) {
      throw InsufficientMemoryError("stack: got no address space for " + std::to_string(size_) +
                                    " bytes, expected it to be free, pass a shorter text");
    }
    mprotect(memory_, page, PROT_NONE);  // an overflow hits this page, and nobody's memory
    pthread_attr_init(&attributes_);
    pthread_attr_setstack(&attributes_, static_cast<char*>(memory_) + page, size_ - page);
  }
  ~Stack() {
    pthread_attr_destroy(&attributes_);
    munmap(memory_, size_);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  const pthread_attr_t* attributes() const { return &attributes_; }

 private:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
  pthread_attr_t attributes_;
};

#endif

}  // namespace

void run_on_big_stack(std::size_t bytes, const std::function<void()>& function) {
  Job job{&function, nullptr};
#if defined(_WIN32)
  (void)bytes;
  std::thread(run, &job).join();
#else
  const Stack stack(bytes);
  pthread_t thread;
  int error = 0;
  {
    const SignalsBlocked blocked;
    error = pthread_create(&thread, stack.attributes(), run, &job);
  }
  if (error != 0) {
    throw InsufficientMemoryError(
        "thread: got error " + std::to_string(error) +
        " when starting one, expected the system to allow it, raise its limits");
  }
  pthread_join(thread, nullptr);
#endif
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace pronk::inline v0
