// Every exception that pronk throws. Each class has one Python class of the same name.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "pronk/api.h"

namespace pronk::inline v0 {

/// Names the class of an Error without RTTI, so that a language binding can map it by table.
enum class ErrorCode : int {
  kError = 0,
  kInvalidArgument,
  kModelLoad,
  kInsufficientMemory,
  kContextOverflow,
  kAcquireTimeout,
  kQueueFull,
  kSchedulerClosed,
  kPermitReleased,
  kPermitBusy,
  kDeadlock,
  kGrammar,
  kBackend,
  kForkedProcess,
  kGenerationCancelled,
  kPoolNotInitialised,
};

/// Base of all errors. The message reads `what: got X, expected Y, do Z`.
class PRONK_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  ~Error() override;
  /// Which class this is, for tables: ErrorCode::kError for a plain Error.
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// An argument outside its allowed range. Python: also a ValueError.
class PRONK_API InvalidArgumentError : public Error {
 public:
  explicit InvalidArgumentError(const std::string& message);
  ~InvalidArgumentError() override;
};

/// A model file that cannot be opened or is not a usable model. Python: also an OSError and a
/// ValueError.
class PRONK_API ModelLoadError : public Error {
 public:
  /// `os_errno` is the errno of the failed system call, 0 where the content is at fault.
  explicit ModelLoadError(const std::string& message, int os_errno = 0);
  ~ModelLoadError() override;
  /// As given to the constructor.
  int os_errno() const noexcept { return os_errno_; }

 private:
  int os_errno_;
};

/// What was too much, as far as it is known; 0 where it is not.
struct MemoryShortage {
  std::uint64_t need = 0;           ///< bytes
  std::uint64_t have = 0;           ///< bytes
  std::int32_t n_ctx = 0;           ///< the largest that fits with the same max_concurrent
  std::int32_t max_concurrent = 0;  ///< the largest that fits with the same n_ctx
};

/// The pool does not fit into the device's free memory. Python: also a MemoryError.
class PRONK_API InsufficientMemoryError : public Error {
 public:
  explicit InsufficientMemoryError(const std::string& message, const MemoryShortage& shortage = {});
  ~InsufficientMemoryError() override;
  const MemoryShortage& shortage() const noexcept { return shortage_; }

 private:
  MemoryShortage shortage_;
};

/// A prompt that does not fit into the context of a permit. Python: also a ValueError.
class PRONK_API ContextOverflowError : public Error {
 public:
  explicit ContextOverflowError(const std::string& message);
  ~ContextOverflowError() override;
};

/// No permit became free in time. Python: also a TimeoutError.
class PRONK_API AcquireTimeout : public Error {
 public:
  explicit AcquireTimeout(const std::string& message);
  ~AcquireTimeout() override;
};

/// The waiting queue has reached `max_waiting`.
class PRONK_API QueueFullError : public Error {
 public:
  explicit QueueFullError(const std::string& message);
  ~QueueFullError() override;
};

/// The scheduler was closed before or while the call waited.
class PRONK_API SchedulerClosedError : public Error {
 public:
  explicit SchedulerClosedError(const std::string& message);
  ~SchedulerClosedError() override;
};

/// The permit was used after its release.
class PRONK_API PermitReleasedError : public Error {
 public:
  explicit PermitReleasedError(const std::string& message);
  ~PermitReleasedError() override;
};

/// The permit already runs a generation.
class PRONK_API PermitBusyError : public Error {
 public:
  explicit PermitBusyError(const std::string& message);
  ~PermitBusyError() override;
};

/// The caller itself holds every permit, so that waiting for one could never end.
class PRONK_API DeadlockError : public Error {
 public:
  explicit DeadlockError(const std::string& message);
  ~DeadlockError() override;
};

/// A grammar that does not parse, or that the generation can no longer follow. Python: also a
/// ValueError.
class PRONK_API GrammarError : public Error {
 public:
  explicit GrammarError(const std::string& message);
  ~GrammarError() override;
};

/// llama.cpp failed to compute. The generation that was running is lost, the process is not.
class PRONK_API BackendError : public Error {
 public:
  explicit BackendError(const std::string& message);
  ~BackendError() override;
};

/// The object was created in another process, of which this one is a fork.
class PRONK_API ForkedProcessError : public Error {
 public:
  explicit ForkedProcessError(const std::string& message);
  ~ForkedProcessError() override;
};

/// The generation was cancelled before it had a result to give.
class PRONK_API GenerationCancelled : public Error {
 public:
  explicit GenerationCancelled(const std::string& message);
  ~GenerationCancelled() override;
};

/// The scheduler has no pool: it was used as a plain semaphore so far.
class PRONK_API PoolNotInitialisedError : public Error {
 public:
  explicit PoolNotInitialisedError(const std::string& message);
  ~PoolNotInitialisedError() override;
};

}  // namespace pronk::inline v0
