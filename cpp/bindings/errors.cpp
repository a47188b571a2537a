// Maps each C++ exception to the Python class of the same name in pronk._errors.
#include "errors.h"

#include <exception>
#include <new>
#include <string_view>

#include "bindings.h"

namespace pronk::bindings {
namespace {

const char* class_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kError:
      return "Error";
    case ErrorCode::kInvalidArgument:
      return "InvalidArgumentError";
    case ErrorCode::kModelLoad:
      return "ModelLoadError";
    case ErrorCode::kInsufficientMemory:
      return "InsufficientMemoryError";
    case ErrorCode::kContextOverflow:
      return "ContextOverflowError";
    case ErrorCode::kAcquireTimeout:
      return "AcquireTimeout";
    case ErrorCode::kQueueFull:
      return "QueueFullError";
    case ErrorCode::kSchedulerClosed:
      return "SchedulerClosedError";
    case ErrorCode::kPermitReleased:
      return "PermitReleasedError";
    case ErrorCode::kPermitBusy:
      return "PermitBusyError";
    case ErrorCode::kDeadlock:
      return "DeadlockError";
    case ErrorCode::kGrammar:
      return "GrammarError";
    case ErrorCode::kBackend:
      return "BackendError";
    case ErrorCode::kForkedProcess:
      return "ForkedProcessError";
    case ErrorCode::kGenerationCancelled:
      return "GenerationCancelled";
    case ErrorCode::kPoolNotInitialised:
      return "PoolNotInitialisedError";
  }
  return "Error";  // a newer libpronk than this module
}

// A message may quote a file name or a log line that is not UTF-8.
nb::object message_of(const char* text) {
  return nb::steal(PyUnicode_DecodeUTF8(
      text, static_cast<Py_ssize_t>(std::string_view(text).size()), "backslashreplace"));
}

void set_error(const char* name, const char* text) {
  const nb::object type = python("pronk._errors", name);
  PyErr_SetObject(type.ptr(), message_of(text).ptr());
}

void set_error(const std::exception_ptr& pointer) {
  try {
    std::rethrow_exception(pointer);
  } catch (const InsufficientMemoryError& error) {
    const MemoryShortage& lack = error.shortage();
    const nb::object type = python("pronk._errors", "InsufficientMemoryError");
    const auto known = [](auto value) {
      return value == 0 ? nb::object(nb::none()) : nb::object(nb::int_(value));
    };
    const nb::object value = type(message_of(error.what()), known(lack.need), known(lack.have),
                                  known(lack.n_ctx), known(lack.max_concurrent));
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (const Error& error) {
    set_error(class_name(error.code()), error.what());
  } catch (const InvalidTypeError& error) {
    set_error("InvalidTypeError", error.what());
  } catch (const ResultTimeout& error) {
    set_error("ResultTimeout", error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  // Anything else leaves this function and goes to the next translator.
}

}  // namespace

void set_error_from_current_exception() noexcept {
  try {
    try {
      throw;
    } catch (nb::python_error& error) {
      error.restore();
    } catch (...) {
      set_error(std::current_exception());
    }
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
}

void raise_model_load_error(const ModelLoadError& error, nb::handle filename) {
  const nb::object type = python("pronk._errors", "ModelLoadError");
  const nb::object code =
      error.os_errno() == 0 ? nb::object(nb::none()) : nb::object(nb::int_(error.os_errno()));
  const nb::object value = type(message_of(error.what()), code, filename);
  PyErr_SetObject(type.ptr(), value.ptr());
  throw nb::python_error();
}

void raise_cancelled(const GenerationCancelled& error, const nb::object& completion) {
  const nb::object type = python("pronk._errors", "GenerationCancelled");
  PyErr_SetObject(type.ptr(), type(message_of(error.what()), completion).ptr());
  throw nb::python_error();
}

void bind_errors(nb::module_&) {
  nb::register_exception_translator(
      [](const std::exception_ptr& pointer, void*) { set_error(pointer); });
}

}  // namespace pronk::bindings
