#include "owner.h"

#include <nanobind/nanobind.h>

#include <atomic>
#include <unordered_map>
#include <utility>

#include "bindings.h"
#include "imported.h"
#include "mailbox.h"

namespace pronk::bindings {
namespace {

std::atomic<std::uint64_t> last_owner{0};
thread_local std::uint64_t number_of_thread = 0;  // 0: none yet

// The address of a task is used again after its death, so each task gets a number at its first
// look-up. A weak reference tells when to forget it. All of this is guarded by the GIL.
std::unordered_map<PyObject*, std::uint64_t> numbers;  // by task
std::unordered_map<PyObject*, PyObject*> tasks;        // by weak reference

// What was looked up lately, packed so that thousands of tasks in turn find it in the CPU's cache.
struct Recent {
  PyObject* task = nullptr;
  std::uint64_t number = 0;
};
constexpr unsigned kRecentBits = 11;
Recent recent_numbers[1 << kRecentBits];

Recent& recent(PyObject* task) {
  // Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4).
  const std::uint64_t hash = reinterpret_cast<std::uintptr_t>(task) * 0x9e3779b97f4a7c15u;
  return recent_numbers[hash >> (64 - kRecentBits)];
}

PyObject* forget_task(PyObject*, PyObject* reference) {
  const auto it = tasks.find(reference);
  if (it != tasks.end()) {
    if (Recent& known = recent(it->second); known.task == it->second) known = {};
    numbers.erase(it->second);
    tasks.erase(it);
    Py_DECREF(reference);
  }
  Py_RETURN_NONE;
}

PyMethodDef forget_task_definition = {"forget_task", &forget_task, METH_O, nullptr};

bool is_before_3_12() {
  // No import, during which other threads would wait for this initialisation with the GIL.
  static const bool before = PyLong_AsLong(PySys_GetObject("hexversion")) < 0x030c0000;
  return before;
}

// The dict of tasks at work, by loop, around which current_task() is written before Python 3.12.
// Null where there is none.
PyObject* current_tasks() {
  static PyObject* by_loop = nullptr;
  if (!is_before_3_12()) return nullptr;
  PyObject* dict = imported(by_loop, "asyncio.tasks", "_current_tasks");
  return dict != nullptr && PyDict_CheckExact(dict) ? dict : nullptr;
}

nb::object asyncio_task(nb::handle loop) {
  static PyObject* function = nullptr;
  if (PyObject* by_loop = current_tasks()) {
    PyObject* task = PyDict_GetItemWithError(by_loop, loop.ptr());
    if (!task && PyErr_Occurred()) throw nb::python_error();
    return task ? nb::borrow(task) : nb::none();
  }
  if (imported(function, "asyncio.tasks", "current_task") == nullptr) return nb::none();
  PyObject* task = PyObject_CallFunctionObjArgs(function, loop.ptr(), nullptr);
  if (!task) throw nb::python_error();
  return nb::steal(task);
}

nb::object trio_task() {
  // Only a program that imported trio can run in it.
  static PyObject* function = nullptr;
  if (imported(function, "trio.lowlevel", "current_task") == nullptr) return nb::none();
  PyObject* task = PyObject_CallNoArgs(function);
  if (task) return nb::steal(task);
  // What it says outside of its tasks.
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) throw nb::python_error();
  PyErr_Clear();
  return nb::none();
}

std::uint64_t remember(PyObject* task, std::uint64_t number) {
  recent(task) = {task, number};
  return number;
}

std::uint64_t number_of(const nb::object& task) {
  if (const Recent& known = recent(task.ptr()); known.task == task.ptr()) return known.number;
  const auto it = numbers.find(task.ptr());
  if (it != numbers.end()) return remember(task.ptr(), it->second);

  const nb::object callback = nb::steal(PyCFunction_New(&forget_task_definition, nullptr));
  PyObject* reference = PyWeakref_NewRef(task.ptr(), callback.ptr());
  if (!reference) throw nb::python_error();
  tasks.emplace(reference, task.ptr());
  numbers.emplace(task.ptr(), ++last_owner);
  return remember(task.ptr(), last_owner);
}

}  // namespace

std::uint64_t thread_owner() noexcept {
  if (number_of_thread == 0) number_of_thread = ++last_owner;
  return number_of_thread;
}

bool has_thread_owner() noexcept { return number_of_thread != 0; }

bool is_in_step(nb::handle asyncio_loop) {
  PyObject* by_loop = current_tasks();
  if (by_loop == nullptr) return false;
  const bool found = PyDict_GetItemWithError(by_loop, asyncio_loop.ptr()) != nullptr;
  if (!found) PyErr_Clear();
  return found;
}

CurrentTask current_task() {
  nb::object loop = running_loop();
  if (loop.is_valid()) {
    const nb::object task = asyncio_task(loop);
    if (!task.is_none()) return {number_of(task), std::move(loop)};
  }
  const nb::object task = trio_task();
  return {task.is_none() ? 0 : number_of(task), nb::object()};
}

std::uint64_t current_owner() {
  const std::uint64_t task = current_task().owner;
  return task == 0 ? thread_owner() : task;
}

void refuse_deadlock(const InferenceScheduler& scheduler, std::uint64_t task_owner) {
  if (task_owner != 0) scheduler.check_deadlock(task_owner);
  if (has_thread_owner()) scheduler.check_deadlock(thread_owner());
}

}  // namespace pronk::bindings
