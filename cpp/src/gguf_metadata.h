// What the checks need to remember of a GGUF file's key/value pairs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "gguf_vocabulary.h"

namespace pronk::inline v0 {

class GgufFile;

enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

struct GgufValue {
  GgufType type = GgufType::kUint8;
  double number = 0;                    ///< of a number; the largest element of an array of numbers
  std::string text;                     ///< of a string, its first 64 bytes
  GgufType element = GgufType::kUint8;  ///< of an array
  std::uint64_t count = 0;              ///< of an array
};

class GgufMetadata {
 public:
  /// Reads `n_pairs` pairs. Throws ModelLoadError.
  GgufMetadata(GgufFile& file, std::uint64_t n_pairs);

  const GgufValue* find(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;  ///< none when missing or no number
  std::string text(const std::string& key) const;              ///< empty when missing or no string
  const GgufVocabulary& vocabulary() const noexcept { return vocabulary_; }

 private:
  std::map<std::string, GgufValue> values_;
  GgufVocabulary vocabulary_;
};

/// Throws ModelLoadError for values on which llama.cpp would abort instead of failing.
void check_gguf_values(const GgufFile& file, const GgufMetadata& metadata);

}  // namespace pronk::inline v0
