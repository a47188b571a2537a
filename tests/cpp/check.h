// A small test harness. A test is a function, made known by its definition:
//
//   TEST(gate_hands_over_in_order) {
//     CHECK(gate.empty());
//     CHECK_EQ(gate.active(), 2);
//     CHECK_THROWS(pronk::QueueFullError, gate.enqueue());
//   }
//
// A check that fails is reported with its place and the test goes on; every check is an expression
// that says whether it held. REQUIRE ends the test, for what the rest cannot do without. All but
// REQUIRE may be used on any thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace check {

struct Place {
  const char* file;
  int line;
};

/// Thrown by REQUIRE; the failure is already reported.
struct TestEnded {};

/// Adds a test to the program.
bool add_test(const char* name, void (*run)());
/// Reports a failed check of the running test.
void fail(Place place, const std::string& message);
/// A seed for this test's random numbers, printed should it fail. Each run of the program draws
/// another one; PRONK_TEST_SEED in the environment repeats one.
std::uint64_t seed();

/// A value as a failure shows it.
template <class T>
std::string show(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    out << '"';
    for (const char c : std::string_view(value)) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\') {
        out << c;
      } else {
        constexpr std::string_view kDigits = "0123456789abcdef";
        out << "\\x" << kDigits[byte / 16] << kDigits[byte % 16];
      }
    }
    out << '"';
  } else if constexpr (std::floating_point<T>) {
    out.precision(17);
    out << value;
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (std::is_same_v<T, std::nullopt_t>) {
    out << "none";
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    out << (value.has_value() ? show(*value) : "none");
  } else if constexpr (requires { value.begin() != value.end(); }) {
    out << '[';
    const char* separator = "";
    for (const auto& item : value) out << std::exchange(separator, ", ") << show(item);
    out << ']';
  } else if constexpr (requires {
                         value.first;
                         value.second;
                       }) {
    out << '(' << show(value.first) << ", " << show(value.second) << ')';
  } else {
    out << '<' << sizeof(T) << " bytes>";
  }
  return out.str();
}

template <class A, class B>
bool equal(const A& a, const B& b) {
  // Signed against unsigned by value, where == would convert first. cmp_equal takes neither bool
  // nor characters.
  if constexpr (std::signed_integral<A> != std::signed_integral<B> && std::integral<A> &&
                std::integral<B> && sizeof(A) > 1 && sizeof(B) > 1) {
    return std::cmp_equal(a, b);
  } else {
    return a == b;
  }
}

inline bool verify(bool held, const char* what, Place place) {
  if (!held) fail(place, what);
  return held;
}

template <class A, class B>
bool verify_equal(const A& a, const B& b, const char* what, Place place) {
  if (equal(a, b)) return true;
  fail(place, std::string(what) + "\n    left:  " + show(a) + "\n    right: " + show(b));
  return false;
}

template <class Wanted, class Call>
bool verify_throws(Call&& call, const char* what, Place place) {
  try {
    std::forward<Call>(call)();
  } catch (const Wanted&) {
    return true;
  } catch (const std::exception& error) {
    fail(place, std::string(what) + "\n    threw instead: " + error.what());
    return false;
  } catch (...) {
    fail(place, std::string(what) + "\n    threw something else");
    return false;
  }
  fail(place, std::string(what) + "\n    threw nothing");
  return false;
}

/// The message of what `call` throws; none where it throws nothing of that type.
template <class Wanted, class Call>
std::optional<std::string> message_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Wanted& error) {
    return error.what();
  }
  return std::nullopt;
}

}  // namespace check

#define CHECK_PLACE_ \
  ::check::Place { __FILE__, __LINE__ }

#define TEST(name)                                                                          \
  static void test_##name();                                                                \
  [[maybe_unused]] static const bool known_##name = ::check::add_test(#name, &test_##name); \
  static void test_##name()

#define CHECK(condition) \
  ::check::verify(static_cast<bool>(condition), "CHECK(" #condition ")", CHECK_PLACE_)

#define CHECK_EQ(a, b) ::check::verify_equal((a), (b), "CHECK_EQ(" #a ", " #b ")", CHECK_PLACE_)

#define CHECK_THROWS(type, ...)                                         \
  ::check::verify_throws<type>([&] { static_cast<void>(__VA_ARGS__); }, \
                               "CHECK_THROWS(" #type ", " #__VA_ARGS__ ")", CHECK_PLACE_)

#define REQUIRE(condition)                                                                       \
  do {                                                                                           \
    if (!::check::verify(static_cast<bool>(condition), "REQUIRE(" #condition ")", CHECK_PLACE_)) \
      throw ::check::TestEnded{};                                                                \
  } while (false)
