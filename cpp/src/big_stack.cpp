#include "big_stack.h"

#include <exception>
#include <string>
#include <utility>

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

void* run(void* function) {
  (*static_cast<std::function<void()>*>(function))();
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

#if defined(_WIN32)

struct BigStackThread::Impl {
  Impl(std::size_t, std::function<void()> what)
      : function(std::move(what)), thread(run, &function) {}
  ~Impl() { thread.join(); }

  std::function<void()> function;
  std::thread thread;
};

#else

struct BigStackThread::Impl {
  Impl(std::size_t bytes, std::function<void()> what) : function(std::move(what)), stack(bytes) {
    const SignalsBlocked blocked;
    const int error = pthread_create(&thread, stack.attributes(), run, &function);
    if (error == 0) return;
    throw InsufficientMemoryError(
        "thread: got error " + std::to_string(error) +
        " when starting one, expected the system to allow it, raise its limits");
  }
  ~Impl() { pthread_join(thread, nullptr); }

  std::function<void()> function;
  const Stack stack;
  pthread_t thread;
};

#endif

BigStackThread::BigStackThread(std::size_t bytes, std::function<void()> function)
    : impl_(std::make_unique<Impl>(bytes, std::move(function))) {}

BigStackThread::~BigStackThread() = default;

void run_on_big_stack(std::size_t bytes, const std::function<void()>& function) {
  std::exception_ptr error;
  {
    const BigStackThread thread(bytes, [&] {
      try {
        function();
      } catch (...) {
        error = std::current_exception();
      }
    });
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace pronk::inline v0
