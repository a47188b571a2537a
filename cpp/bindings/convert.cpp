#include "convert.h"

#include <nanobind/stl/string.h>

#include <cmath>

#include "errors.h"

namespace pronk::bindings {
namespace {

constexpr std::size_t kLongestRepr = 80;  // characters

nb::object index_of(nb::handle value, const Argument& argument, const std::string& expected) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) {
    throw_invalid_type(argument, value, expected);
  }
  PyObject* index = PyNumber_Index(value.ptr());
  if (!index) throw nb::python_error();
  return nb::steal(index);
}

std::string integer_in(std::int64_t low, std::int64_t high) {
  return "an integer in [" + std::to_string(low) + ", " + std::to_string(high) + "]";
}

}  // namespace

std::string repr_of(nb::handle value) {
  try {
    const nb::object text = nb::steal(PyObject_ASCII(value.ptr()));
    if (!text.is_valid()) throw nb::python_error();
    std::string result = nb::cast<std::string>(text);
    if (result.size() > kLongestRepr) result = result.substr(0, kLongestRepr - 3) + "...";
    return result;
  } catch (nb::python_error&) {
    // An int of more digits than Python prints, or a broken __repr__.
    return "an unprintable value";
  }
}

std::string repr_with_type(nb::handle value) {
  const nb::object name = nb::getattr(value.type(), "__name__", nb::str("?"));
  return repr_of(value) + " (" + nb::cast<std::string>(name) + ")";
}

void throw_invalid_type(const Argument& argument, nb::handle got, std::string_view expected) {
  throw InvalidTypeError(std::string(argument.name) + ": got " + repr_with_type(got) +
                         ", expected " + std::string(expected) + ", " + argument.advice);
}

void throw_invalid_value(const Argument& argument, nb::handle got, std::string_view expected) {
  throw InvalidArgumentError(std::string(argument.name) + ": got " + repr_of(got) + ", expected " +
                             std::string(expected) + ", " + argument.advice);
}

std::int64_t to_int(nb::handle value, const Argument& argument, std::int64_t low,
                    std::int64_t high) {
  int overflow = 0;
  if (PyLong_CheckExact(value.ptr())) {
    // The usual case, which every acquire() goes through: no text is made for it.
    const long long result = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0 && result >= low && result <= high) return result;
  }
  const nb::object index = index_of(value, argument, integer_in(low, high));
  const long long result = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || result < low || result > high) {
    throw_invalid_value(argument, value, integer_in(low, high));
  }
  return result;
}

std::optional<std::int32_t> to_optional_int32(nb::handle value, const Argument& argument,
                                              std::int64_t low, std::int64_t high) {
  if (value.is_none()) return std::nullopt;
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) {
    throw_invalid_type(argument, value, "None or " + integer_in(low, high));
  }
  return to_int32(value, argument, low, high);
}

std::uint64_t to_uint64(nb::handle value, const Argument& argument) {
  const char* expected = "an integer in [0, 2**64)";
  const nb::object index = index_of(value, argument, expected);
  const unsigned long long result = PyLong_AsUnsignedLongLong(index.ptr());
  if (result == static_cast<unsigned long long>(-1) && PyErr_Occurred()) {
    PyErr_Clear();  // an OverflowError: negative or too large
    throw_invalid_value(argument, value, expected);
  }
  return result;
}

double to_double(nb::handle value, const Argument& argument) {
  if (PyFloat_Check(value.ptr())) {
    const double result = PyFloat_AsDouble(value.ptr());
    if (std::isnan(result)) throw_invalid_value(argument, value, "a number");
    return result;
  }
  if (PyBool_Check(value.ptr()) || PyUnicode_Check(value.ptr()) ||
      !(PyIndex_Check(value.ptr()) || nb::hasattr(value.type(), "__float__"))) {
    throw_invalid_type(argument, value, "a number");
  }
  const double result = PyFloat_AsDouble(value.ptr());
  if (result == -1.0 && PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw nb::python_error();
    PyErr_Clear();  // an int beyond the largest double
    const int negative = PyObject_RichCompareBool(value.ptr(), nb::int_(0).ptr(), Py_LT);
    if (negative < 0) throw nb::python_error();
    return negative ? -std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::infinity();
  }
  if (std::isnan(result)) throw_invalid_value(argument, value, "a number");
  return result;
}

bool to_bool(nb::handle value, const Argument& argument) {
  if (!PyBool_Check(value.ptr())) throw_invalid_type(argument, value, "True or False");
  return value.is(Py_True);
}

std::string_view to_string_view(nb::handle value, const Argument& argument) {
  if (!PyUnicode_Check(value.ptr())) throw_invalid_type(argument, value, "a str");
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (!data) {
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw nb::python_error();
    PyErr_Clear();
    throw_invalid_value(argument, value, "text without lone surrogates");
  }
  return {data, static_cast<std::size_t>(size)};
}

std::string to_path(nb::handle value, const Argument& argument) {
  PyObject* bytes = nullptr;
  if (!PyUnicode_FSConverter(value.ptr(), &bytes)) {
    const bool is_type = PyErr_ExceptionMatches(PyExc_TypeError);
    if (!is_type && !PyErr_ExceptionMatches(PyExc_ValueError)) throw nb::python_error();
    PyErr_Clear();
    if (is_type) throw_invalid_type(argument, value, "a str or os.PathLike");
    throw_invalid_value(argument, value, "a path without NUL that the file system can encode");
  }
  const nb::bytes owned = nb::steal<nb::bytes>(bytes);
  return std::string(owned.c_str(), owned.size());
}

std::optional<std::chrono::nanoseconds> to_timeout(nb::handle value, const Argument& argument) {
  if (value.is_none()) return std::nullopt;
  const char* expected = "None or a finite number of seconds >= 0";
  if (PyBool_Check(value.ptr()) ||
      !(PyFloat_Check(value.ptr()) || PyIndex_Check(value.ptr()) ||
        (!PyUnicode_Check(value.ptr()) && nb::hasattr(value.type(), "__float__")))) {
    throw_invalid_type(argument, value, expected);
  }
  const bool is_float = PyFloat_Check(value.ptr());
  if (is_float && !std::isfinite(PyFloat_AsDouble(value.ptr()))) {
    throw_invalid_value(argument, value, expected);
  }
  const double seconds = to_double(value, argument);
  if (seconds < 0) throw_invalid_value(argument, value, expected);
  constexpr double kLongest = 9e9;  // seconds; as many as nanoseconds can count
  if (seconds > kLongest) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

}  // namespace pronk::bindings
