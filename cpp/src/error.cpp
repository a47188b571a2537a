// Out of line, so that each class has its vtable and typeinfo in libpronk alone: an exception
// thrown here is then caught by type in every library that links it.
#include "pronk/error.h"

namespace pronk::inline v0 {

namespace {

// what() ends at the first NUL, and with it the advice.
std::string spell_out_nul(const std::string& message) {
  std::string result;
  for (const char c : message) result += c == '\0' ? std::string("\\0") : std::string(1, c);
  return result;
}

}  // namespace

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(spell_out_nul(message)), code_(code) {}
Error::~Error() = default;

InvalidArgumentError::InvalidArgumentError(const std::string& message)
    : Error(ErrorCode::kInvalidArgument, message) {}
InvalidArgumentError::~InvalidArgumentError() = default;

ModelLoadError::ModelLoadError(const std::string& message, int os_errno)
    : Error(ErrorCode::kModelLoad, message), os_errno_(os_errno) {}
ModelLoadError::~ModelLoadError() = default;

InsufficientMemoryError::InsufficientMemoryError(const std::string& message,
                                                 const MemoryShortage& shortage)
    : Error(ErrorCode::kInsufficientMemory, message), shortage_(shortage) {}
InsufficientMemoryError::~InsufficientMemoryError() = default;

ContextOverflowError::ContextOverflowError(const std::string& message)
    : Error(ErrorCode::kContextOverflow, message) {}
ContextOverflowError::~ContextOverflowError() = default;

AcquireTimeout::AcquireTimeout(const std::string& message)
    : Error(ErrorCode::kAcquireTimeout, message) {}
AcquireTimeout::~AcquireTimeout() = default;

QueueFullError::QueueFullError(const std::string& message)
    : Error(ErrorCode::kQueueFull, message) {}
QueueFullError::~QueueFullError() = default;

SchedulerClosedError::SchedulerClosedError(const std::string& message)
    : Error(ErrorCode::kSchedulerClosed, message) {}
SchedulerClosedError::~SchedulerClosedError() = default;

PermitReleasedError::PermitReleasedError(const std::string& message)
    : Error(ErrorCode::kPermitReleased, message) {}
PermitReleasedError::~PermitReleasedError() = default;

PermitBusyError::PermitBusyError(const std::string& message)
    : Error(ErrorCode::kPermitBusy, message) {}
PermitBusyError::~PermitBusyError() = default;

DeadlockError::DeadlockError(const std::string& message) : Error(ErrorCode::kDeadlock, message) {}
DeadlockError::~DeadlockError() = default;

GrammarError::GrammarError(const std::string& message) : Error(ErrorCode::kGrammar, message) {}
GrammarError::~GrammarError() = default;

BackendError::BackendError(const std::string& message) : Error(ErrorCode::kBackend, message) {}
BackendError::~BackendError() = default;

ForkedProcessError::ForkedProcessError(const std::string& message)
    : Error(ErrorCode::kForkedProcess, message) {}
ForkedProcessError::~ForkedProcessError() = default;

GenerationCancelled::GenerationCancelled(const std::string& message)
    : Error(ErrorCode::kGenerationCancelled, message) {}
GenerationCancelled::~GenerationCancelled() = default;

PoolNotInitialisedError::PoolNotInitialisedError(const std::string& message)
    : Error(ErrorCode::kPoolNotInitialised, message) {}
PoolNotInitialisedError::~PoolNotInitialisedError() = default;

}  // namespace pronk::inline v0
