// Options given as **keywords: a table says which there are.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert.h"

namespace pronk::bindings {

template <class Options>
struct Keyword {
  Argument argument;
  void (*set)(Options& options, nb::handle value, const Argument& argument);
};

/// Throws a TypeError that names the allowed keywords, the closest ones first.
[[noreturn]] void throw_unknown_keyword(const char* function, std::string_view got,
                                        const std::vector<std::string>& allowed);

template <class Options>
void set_keywords(Options& options, const char* function, const nb::kwargs& keywords,
                  std::span<const Keyword<Options>> table) {
  for (const auto [key, value] : keywords) {
    const std::string_view name = to_string_view(key, {function, "pass keywords by name"});
    const Keyword<Options>* found = nullptr;
    for (const Keyword<Options>& keyword : table) {
      if (name == keyword.argument.name) found = &keyword;
    }
    if (!found) {
      std::vector<std::string> allowed;
      for (const Keyword<Options>& keyword : table) allowed.emplace_back(keyword.argument.name);
      throw_unknown_keyword(function, name, allowed);
    }
    found->set(options, value, found->argument);
  }
}

}  // namespace pronk::bindings
