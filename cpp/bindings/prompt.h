// A prompt as Python gives it.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>
#include <variant>
#include <vector>

#include "pronk/params.h"

namespace pronk::bindings {

/// Text is borrowed from the str that the caller holds.
using Prompt = std::variant<std::string_view, std::vector<Token>>;

/// A str, a sequence of int, or a one-dimensional array of integers (buffer protocol or DLPack).
Prompt to_prompt(nanobind::handle value);
/// The same without text; `name` is the argument's.
std::vector<Token> to_tokens(nanobind::handle value, const char* name);

}  // namespace pronk::bindings
