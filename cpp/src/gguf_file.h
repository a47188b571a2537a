// A file read front to back with every length checked against what is left of it.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace pronk::inline v0 {

class GgufFile {
 public:
  /// Throws ModelLoadError, with errno, when `path` is not a regular file that can be read.
  explicit GgufFile(const std::string& path);

  std::uint64_t size() const noexcept { return size_; }
  std::uint64_t position() const noexcept { return position_; }
  std::uint64_t remaining() const noexcept { return size_ - position_; }

  /// `what` names the item in the error of a file that ends too early.
  template <typename T>
  T value(const char* what) {
    T result;
    read(&result, sizeof(result), what);
    return result;
  }
  /// A length-prefixed string. Longer than `limit` bytes is an error.
  std::string text(std::uint64_t limit, const char* what);
  void skip(std::uint64_t bytes, const char* what);

  /// Throws ModelLoadError: `path: got ..., expected ...`.
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void read(void* to, std::uint64_t bytes, const char* what);
  void require(std::uint64_t bytes, const char* what) const;

  std::string path_;
  std::vector<char> buffer_;  // of stream_, declared before it: the stream uses it until its end
  std::ifstream stream_;
  std::uint64_t size_ = 0;
  std::uint64_t position_ = 0;
};

}  // namespace pronk::inline v0
