#include "pool_maker.h"

#include <cstddef>
#include <utility>

#include "decode_loop.h"

namespace pronk::inline v0 {
namespace {

// llama.cpp creates a context on the stack of who asks for it, which may be a small thread's.
constexpr std::size_t kStack = std::size_t{8} << 20;

}  // namespace

PoolMaker::PoolMaker(Make make) : thread_(kStack, [this, make = std::move(make)] { run(make); }) {}

PoolMaker::~PoolMaker() = default;

void PoolMaker::run(const Make& make) {
  std::shared_ptr<DecodeLoop> made;
  std::exception_ptr error;
  try {
    made = make(cancelled_);
  } catch (...) {
    error = std::current_exception();
  }
  if (cancelled()) made = nullptr;  // freed before anybody hears of the end
  std::lock_guard lock(mutex_);
  pool_ = std::move(made);
  error_ = error;
  ended_ = true;
  ended_changed_.notify_all();
}

void PoolMaker::cancel() {
  cancelled_->store(true);
  std::shared_ptr<DecodeLoop> unwanted;
  std::lock_guard lock(mutex_);
  unwanted.swap(pool_);
}

bool PoolMaker::wait_until(RealTime deadline) {
  std::unique_lock lock(mutex_);
  return ended_changed_.wait_until(lock, deadline, [this] { return ended_; });
}

std::shared_ptr<DecodeLoop> PoolMaker::pool() {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  return pool_;
}

}  // namespace pronk::inline v0
