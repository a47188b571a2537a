#include "errors.h"

#include <chrono>
#include <stdexcept>

namespace downstream {

void raise_error(const std::string& name, const std::string& message) {
  if (name == "Error") throw pronk::Error(pronk::ErrorCode::kError, message);
  if (name == "InvalidArgumentError") throw pronk::InvalidArgumentError(message);
  if (name == "ModelLoadError") throw pronk::ModelLoadError(message);
  if (name == "InsufficientMemoryError") throw pronk::InsufficientMemoryError(message);
  if (name == "ContextOverflowError") throw pronk::ContextOverflowError(message);
  if (name == "AcquireTimeout") throw pronk::AcquireTimeout(message);
  if (name == "QueueFullError") throw pronk::QueueFullError(message);
  if (name == "SchedulerClosedError") throw pronk::SchedulerClosedError(message);
  if (name == "PermitReleasedError") throw pronk::PermitReleasedError(message);
  if (name == "PermitBusyError") throw pronk::PermitBusyError(message);
  if (name == "DeadlockError") throw pronk::DeadlockError(message);
  if (name == "GrammarError") throw pronk::GrammarError(message);
  if (name == "BackendError") throw pronk::BackendError(message);
  if (name == "ForkedProcessError") throw pronk::ForkedProcessError(message);
  if (name == "GenerationCancelled") throw pronk::GenerationCancelled(message);
  if (name == "PoolNotInitialisedError") throw pronk::PoolNotInitialisedError(message);
  throw std::invalid_argument(name);
}

std::string caught_in_cpp(pronk::InferenceScheduler& scheduler) {
  try {
    const pronk::InferencePermit permit = scheduler.acquire(std::chrono::nanoseconds(0));
    return "none";
  } catch (const pronk::AcquireTimeout&) {
    return "AcquireTimeout";
  } catch (const pronk::SchedulerClosedError&) {
    return "SchedulerClosedError";
  } catch (const pronk::Error&) {
    return "Error";
  } catch (const std::runtime_error&) {
    return "std::runtime_error";
  }
}

}  // namespace downstream
