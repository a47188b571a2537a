// Small files that the system describes itself in.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace pronk::inline v0 {

/// Reads a whole small file; none when it cannot be read.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

/// From the file system.
std::optional<std::string> read_file(const std::string& path);

}  // namespace pronk::inline v0
