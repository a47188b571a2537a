#include "owner.h"

#include <nanobind/nanobind.h>

#include <atomic>
#include <unordered_map>
#include <utility>

#include "bindings.h"

namespace pronk::bindings {
namespace {

std::atomic<std::uint64_t> last_owner{0};

// The address of a task is used again after its death, so each task gets a number at its first
// look-up. A weak reference tells when to forget it. All of this is guarded by the GIL.
std::unordered_map<PyObject*, std::uint64_t> numbers;  // by task
std::unordered_map<PyObject*, PyObject*> tasks;        // by weak reference

PyObject* forget_task(PyObject*, PyObject* reference) {
  const auto it = tasks.find(reference);
  if (it != tasks.end()) {
    numbers.erase(it->second);
    tasks.erase(it);
    Py_DECREF(reference);
  }
  Py_RETURN_NONE;
}

PyMethodDef forget_task_definition = {"forget_task", &forget_task, METH_O, nullptr};

// What `function` returns, or None where it says by RuntimeError that none of its tasks runs.
nb::object call_for_task(PyObject* function) {
  PyObject* task = PyObject_CallNoArgs(function);
  if (!task) {
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) throw nb::python_error();
    PyErr_Clear();
    return nb::none();
  }
  return nb::steal(task);
}

nb::object asyncio_task() {
  // Kept for good: a function of another library, which holds nothing of ours.
  static PyObject* const function =
      nb::module_::import_("asyncio").attr("current_task").inc_ref().ptr();
  return call_for_task(function);
}

nb::object trio_task() {
  // Only a program that imported trio can run in it.
  const nb::object name = nb::str("trio.lowlevel");
  const nb::object trio = nb::steal(PyImport_GetModule(name.ptr()));
  if (!trio.is_valid()) {
    PyErr_Clear();
    return nb::none();
  }
  return call_for_task(nb::object(trio.attr("current_task")).ptr());
}

std::uint64_t number_of(const nb::object& task) {
  const auto it = numbers.find(task.ptr());
  if (it != numbers.end()) return it->second;

  const nb::object callback = nb::steal(PyCFunction_New(&forget_task_definition, nullptr));
  PyObject* reference = PyWeakref_NewRef(task.ptr(), callback.ptr());
  if (!reference) throw nb::python_error();
  tasks.emplace(reference, task.ptr());
  return numbers.emplace(task.ptr(), ++last_owner).first->second;
}

}  // namespace

std::uint64_t thread_owner() noexcept {
  thread_local const std::uint64_t number = ++last_owner;
  return number;
}

CurrentTask current_task() {
  nb::object task = asyncio_task();
  if (!task.is_none()) {
    const std::uint64_t owner = number_of(task);
    return {owner, std::move(task)};
  }
  task = trio_task();
  return {task.is_none() ? 0 : number_of(task), nb::object()};
}

}  // namespace pronk::bindings
