#include "prompt.h"

#include <nanobind/ndarray.h>

#include <optional>
#include <string>

#include "bindings.h"
#include "convert.h"
#include "errors.h"

namespace pronk::bindings {
namespace {

constexpr const char* kTokens = "a sequence or one-dimensional array of token ids";
// More than any context holds; copying them would only take memory.
constexpr Py_ssize_t kMaxTokens = Py_ssize_t{1} << 27;
constexpr const char* kAdvice = "pass the result of engine.tokenize()";

[[noreturn]] void throw_bad_id(const char* name, std::size_t index, const std::string& got) {
  throw InvalidArgumentError(std::string(name) + ": got token id " + got + " at index " +
                             std::to_string(index) + ", expected an integer in [0, n_vocab), " +
                             kAdvice);
}

template <class Integer>
std::vector<Token> copy_array(const nb::ndarray<>& array, const char* name) {
  const auto* data = static_cast<const Integer*>(array.data());
  const std::int64_t stride = array.stride(0);
  std::vector<Token> tokens(array.shape(0));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Integer value = data[static_cast<std::int64_t>(i) * stride];
    if (!std::in_range<Token>(value) || value < Integer{0})
      throw_bad_id(name, i, std::to_string(value));
    tokens[i] = static_cast<Token>(value);
  }
  return tokens;
}

std::optional<std::vector<Token>> from_array(nb::handle value, const char* name) {
  // Through a memoryview where there is a buffer: some exporters, ctypes among them, leave out the
  // strides that they are asked for, and a memoryview fills them in.
  nb::object source = nb::steal(PyMemoryView_FromObject(value.ptr()));
  if (!source.is_valid()) {
    PyErr_Clear();
    source = nb::borrow(value);
  }
  nb::ndarray<nb::ro, nb::device::cpu> view;
  if (!nb::try_cast(source, view)) return std::nullopt;
  const nb::ndarray<> array(view.handle());
  const nb::dlpack::dtype dtype = array.dtype();
  const bool is_signed = dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int);
  const bool is_unsigned = dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt);
  if (array.ndim() != 1 || dtype.lanes != 1 || !(is_signed || is_unsigned)) {
    throw_invalid_type({name, kAdvice}, value, kTokens);
  }
  if (array.shape(0) > static_cast<std::size_t>(kMaxTokens)) {
    throw InvalidArgumentError(std::string(name) + ": got " + std::to_string(array.shape(0)) +
                               " token ids, expected at most " + std::to_string(kMaxTokens) +
                               ", shorten it");
  }
  switch (dtype.bits) {
    case 8:
      return is_signed ? copy_array<std::int8_t>(array, name)
                       : copy_array<std::uint8_t>(array, name);
    case 16:
      return is_signed ? copy_array<std::int16_t>(array, name)
                       : copy_array<std::uint16_t>(array, name);
    case 32:
      return is_signed ? copy_array<std::int32_t>(array, name)
                       : copy_array<std::uint32_t>(array, name);
    case 64:
      return is_signed ? copy_array<std::int64_t>(array, name)
                       : copy_array<std::uint64_t>(array, name);
    default:
      throw_invalid_type({name, kAdvice}, value, kTokens);
  }
}

std::vector<Token> from_sequence(nb::handle value, const char* name) {
  const Py_ssize_t size = PySequence_Size(value.ptr());
  if (size < 0 && !PyErr_ExceptionMatches(PyExc_OverflowError)) throw nb::python_error();
  if (size < 0 || size > kMaxTokens) {
    PyErr_Clear();
    throw InvalidArgumentError(std::string(name) + ": got more than " + std::to_string(kMaxTokens) +
                               " token ids, expected fewer, shorten it");
  }
  std::vector<Token> tokens;
  tokens.reserve(static_cast<std::size_t>(size));
  for (const nb::handle item : value) {
    if (PyBool_Check(item.ptr()) || !PyIndex_Check(item.ptr())) {
      throw InvalidTypeError(std::string(name) + ": got " + repr_with_type(item) + " at index " +
                             std::to_string(tokens.size()) + ", expected an int, " + kAdvice);
    }
    const nb::object index = nb::steal(PyNumber_Index(item.ptr()));
    if (!index.is_valid()) throw nb::python_error();
    int overflow = 0;
    const long long id = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (overflow != 0 || id < 0 || id > kMaxInt32) throw_bad_id(name, tokens.size(), repr_of(item));
    tokens.push_back(static_cast<Token>(id));
  }
  return tokens;
}

}  // namespace

std::vector<Token> to_tokens(nb::handle value, const char* name) {
  PyObject* object = value.ptr();
  if (PyList_Check(object) || PyTuple_Check(object)) return from_sequence(value, name);
  if (!PyUnicode_Check(object) && !PyBytes_Check(object) && !PyByteArray_Check(object)) {
    if (auto tokens = from_array(value, name)) return *std::move(tokens);
    if (PySequence_Check(object)) return from_sequence(value, name);
  }
  const bool text_allowed = std::string_view(name) == "prompt";
  throw_invalid_type({name, kAdvice}, value,
                     text_allowed ? std::string("a str or ") + kTokens : kTokens);
}

Prompt to_prompt(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) {
    return to_string_view(value, {"prompt", "encode with errors='replace' and decode it again"});
  }
  std::vector<Token> tokens = to_tokens(value, "prompt");
  if (tokens.empty()) {
    throw InvalidArgumentError(
        "prompt: got no tokens, expected at least one, pass the result of engine.tokenize()");
  }
  return tokens;
}

}  // namespace pronk::bindings
