// pronk's errors on both of their ways.
#pragma once

#include <pronk/pronk.h>

#include <string>

namespace downstream {

/// Throws the error of that name. std::invalid_argument for a name that pronk does not have.
[[noreturn]] void raise_error(const std::string& name, const std::string& message);

/// Acquires without waiting and says which of pronk's classes that threw: "none" for none.
std::string caught_in_cpp(pronk::InferenceScheduler& scheduler);

}  // namespace downstream
