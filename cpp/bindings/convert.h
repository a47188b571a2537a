// Checks of Python arguments. Stricter than nanobind's own: True is no number, "2" is no number,
// and the error says what was got and what is allowed.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace pronk::bindings {

namespace nb = nanobind;

/// How an argument is named in messages, and what to do about a bad one.
struct Argument {
  const char* name;
  const char* advice;
};

inline constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

/// Annotates a parameter of type nb::handle: nanobind lets everything through, None too, and we
/// check.
inline constexpr auto unchecked(const char* name) { return nb::arg(name).none(); }

/// repr(value), shortened; never throws.
std::string repr_of(nb::handle value);
/// repr(value) and the name of its type.
std::string repr_with_type(nb::handle value);

[[noreturn]] void throw_invalid_type(const Argument& argument, nb::handle got,
                                     std::string_view expected);
[[noreturn]] void throw_invalid_value(const Argument& argument, nb::handle got,
                                      std::string_view expected);

/// An int, or what has __index__, within [low, high].
std::int64_t to_int(nb::handle value, const Argument& argument, std::int64_t low,
                    std::int64_t high);
inline std::int32_t to_int32(nb::handle value, const Argument& argument, std::int64_t low,
                             std::int64_t high = kMaxInt32) {
  return static_cast<std::int32_t>(to_int(value, argument, low, high));
}
std::optional<std::int32_t> to_optional_int32(nb::handle value, const Argument& argument,
                                              std::int64_t low, std::int64_t high = kMaxInt32);
/// An int in [0, 2**64).
std::uint64_t to_uint64(nb::handle value, const Argument& argument);
/// A real number that is not NaN.
double to_double(nb::handle value, const Argument& argument);
bool to_bool(nb::handle value, const Argument& argument);
/// UTF-8 of a str, owned by it.
std::string_view to_string_view(nb::handle value, const Argument& argument);
/// The bytes of a str, bytes or os.PathLike, as the file system wants them.
std::string to_path(nb::handle value, const Argument& argument);
/// None, or seconds >= 0. A time too long to count is none too: it never comes.
std::optional<std::chrono::nanoseconds> to_timeout(nb::handle value, const Argument& argument);

}  // namespace pronk::bindings
