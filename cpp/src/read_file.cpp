#include "read_file.h"

#include <fstream>
#include <sstream>

namespace pronk::inline v0 {

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace pronk::inline v0
