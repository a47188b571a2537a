#include "gguf_file.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

std::string reason(int code) { return std::generic_category().message(code); }

const char* kind_of(std::filesystem::file_type type) {
  switch (type) {
    case std::filesystem::file_type::directory:
      return "a directory";
    case std::filesystem::file_type::fifo:
      return "a named pipe";
    case std::filesystem::file_type::socket:
      return "a socket";
    case std::filesystem::file_type::block:
    case std::filesystem::file_type::character:
      return "a device";
    default:
      return "a special file";
  }
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : path_(path), buffer_(1 << 16) {
  namespace fs = std::filesystem;
  if (path.empty() || path.find('\0') != std::string::npos) {
    throw ModelLoadError(
        "model path: got " +
            std::string(path.empty() ? "an empty string" : "a NUL character in it") +
            ", expected the path of a GGUF file",
        EINVAL);
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    throw ModelLoadError(path + ": got no such file, expected a GGUF file, check the path", ENOENT);
  }
  if (error) {
    throw ModelLoadError(path + ": got '" + reason(error.value()) + "', expected a GGUF file",
                         error.value());
  }
  // Before it is opened: opening a pipe would wait for its writer.
  if (status.type() != fs::file_type::regular) {
    const bool directory = status.type() == fs::file_type::directory;
    throw ModelLoadError(path + ": got " + kind_of(status.type()) +
                             ", expected a GGUF file, pass the path of the .gguf file itself",
                         directory ? EISDIR : EINVAL);
  }

  stream_.rdbuf()->pubsetbuf(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  errno = 0;
  stream_.open(path, std::ios::binary | std::ios::ate);
  const int open_errno = errno;
  if (!stream_) {
    throw ModelLoadError(path + ": got '" + reason(open_errno) +
                             "', expected a file that can be read, check its permissions",
                         open_errno == 0 ? EIO : open_errno);
  }
  size_ = static_cast<std::uint64_t>(stream_.tellg());
  stream_.seekg(0);
}

void GgufFile::require(std::uint64_t bytes, const char* what) const {
  if (bytes > remaining()) {
    fail("got " + std::to_string(size_) + " bytes, too few for " + what + " at byte " +
         std::to_string(position_) +
         ", expected a whole GGUF file, it is truncated or damaged, fetch it again");
  }
}

void GgufFile::read(void* to, std::uint64_t bytes, const char* what) {
  require(bytes, what);
  if (bytes == 0) return;
  errno = 0;
  stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  const int read_errno = errno;
  if (!stream_) {
    throw ModelLoadError(path_ + ": got '" + reason(read_errno == 0 ? EIO : read_errno) +
                             "' at byte " + std::to_string(position_) + ", expected to read " +
                             what,
                         read_errno == 0 ? EIO : read_errno);
  }
  position_ += bytes;
}

std::string GgufFile::text(std::uint64_t limit, const char* what) {
  const auto length = value<std::uint64_t>(what);
  require(length, what);
  if (length > limit) {
    fail("got " + std::string(what) + " of " + std::to_string(length) +
         " bytes, expected at most " + std::to_string(limit) + ", the file is damaged");
  }
  std::string result(static_cast<std::size_t>(length), '\0');
  read(result.data(), length, what);
  return result;
}

void GgufFile::skip(std::uint64_t bytes, const char* what) {
  require(bytes, what);
  // A seek throws the buffer away: dear for the many short strings of a vocabulary.
  if (bytes < buffer_.size()) {
    stream_.ignore(static_cast<std::streamsize>(bytes));
  } else {
    stream_.seekg(static_cast<std::streamoff>(bytes), std::ios::cur);
  }
  position_ += bytes;
}

void GgufFile::fail(const std::string& problem) const {
  throw ModelLoadError(path_ + ": " + problem);
}

}  // namespace pronk::inline v0
