#include "pronk/mailbox.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "pronk/error.h"

#if defined(__linux__)
#include <sys/eventfd.h>
#endif

namespace pronk::inline v0 {
namespace {

// Up to so many keys are searched one by one for a repeated one, which allocates nothing.
constexpr std::size_t kFew = 16;

thread_local Mailbox::Silence* silence = nullptr;  // the innermost of this thread

}  // namespace

Mailbox::Silence::Silence(Mailbox& mailbox) noexcept : mailbox_(mailbox), outer_(silence) {
  silence = this;
}

Mailbox::Silence::~Silence() {
  silence = outer_;
  if (rung_) mailbox_.ring();
}

struct Mailbox::Impl {
  int read_fd = -1;
  int write_fd = -1;  // the same descriptor where the system has eventfd
  std::mutex mutex;
  std::vector<std::uint64_t> keys;           // guarded by mutex
  std::unordered_set<std::uint64_t> posted;  // guarded by mutex; the keys, once they are many
  bool rung = false;                         // guarded by mutex; the descriptor is readable
};

Mailbox::Mailbox() : impl_(std::make_unique<Impl>()) {
#if defined(__linux__)
  impl_->read_fd = impl_->write_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  const bool ok = impl_->read_fd >= 0;
#else
  int fds[2];
  const bool ok = pipe(fds) == 0;
  if (ok) {
    for (int fd : fds) {
      fcntl(fd, F_SETFL, O_NONBLOCK);
      fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    impl_->read_fd = fds[0];
    impl_->write_fd = fds[1];
  }
#endif
  if (!ok) {
    throw BackendError(std::string("mailbox: got ") + std::strerror(errno) +
                       ", expected a free file descriptor, raise the limit on open files");
  }
}

Mailbox::~Mailbox() {
  close(impl_->read_fd);
  if (impl_->write_fd != impl_->read_fd) close(impl_->write_fd);
}

int Mailbox::fd() const noexcept { return impl_->read_fd; }

void Mailbox::post(std::uint64_t key) {
  std::lock_guard lock(impl_->mutex);
  auto& keys = impl_->keys;
  auto& posted = impl_->posted;
  if (keys.size() < kFew) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    return;
  }
  if (posted.empty()) posted.insert(keys.begin(), keys.end());
  if (posted.insert(key).second) keys.push_back(key);
}

void Mailbox::ring() noexcept {
  if (silence != nullptr && &silence->mailbox_ == this) {
    silence->rung_ = true;
    return;
  }
  std::lock_guard lock(impl_->mutex);
  if (impl_->rung || impl_->keys.empty()) return;
  impl_->rung = true;
  const std::uint64_t one = 1;
  // A full pipe is readable already; nothing else can fail on our own non-blocking descriptor.
  [[maybe_unused]] const ssize_t n =
      write(impl_->write_fd, &one, impl_->read_fd == impl_->write_fd ? sizeof one : 1);
}

std::vector<std::uint64_t> Mailbox::drain() {
  std::vector<std::uint64_t> keys;
  drain(keys);
  return keys;
}

void Mailbox::drain(std::vector<std::uint64_t>& keys) {
  keys.clear();
  std::lock_guard lock(impl_->mutex);
  if (impl_->rung) {
    std::uint64_t buffer[8];
    while (read(impl_->read_fd, buffer, sizeof buffer) > 0 && impl_->read_fd != impl_->write_fd) {
    }
    impl_->rung = false;
  }
  if (!impl_->posted.empty()) impl_->posted.clear();
  std::swap(impl_->keys, keys);
}

}  // namespace pronk::inline v0
