#include "gguf_divisors.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "gguf_file.h"
#include "gguf_metadata.h"

namespace pronk::inline v0 {
namespace {

// Those that no architecture has as 0, whether it divides by them or not.
constexpr std::string_view kDivisors[] = {
    "attention.indexer.block_size", "attention.output_group_count",
    "full_attention_interval",      "ssm.inner_size",
    "ssm.time_step_rank",           "wkv.head_size",
};
// Of architectures that divide by the number of heads and take it for 0 without one.
constexpr std::string_view kDivideByHeads[] = {"deepseek2-ocr", "gemma2", "gemma3", "olmo2",
                                               "phimoe"};
// Of architectures that divide by the experts in use where the size of one is not given.
constexpr std::string_view kDivideByExperts[] = {"glm4moe", "llada-moe", "qwen35moe", "qwen3next",
                                                 "qwen4exp"};

bool contains(const auto& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

void check_gguf_divisors(const GgufFile& file, const GgufMetadata& metadata) {
  const std::string arch = metadata.text("general.architecture");
  const auto get = [&](std::string_view name) {
    return metadata.number(arch + "." + std::string(name));
  };
  const auto refuse = [&](std::string_view name, const char* got) {
    file.fail("got " + arch + "." + std::string(name) + " " + got +
              ", expected a positive number, the file is damaged or of an unknown kind");
  };
  for (const std::string_view name : kDivisors) {
    if (get(name) == 0.0) refuse(name, "= 0");
  }
  // One without groups says 0.
  if (get("ssm.group_count") == 0.0 && !arch.starts_with("plamo")) refuse("ssm.group_count", "= 0");

  const double n_heads = get("attention.head_count").value_or(0);
  if (n_heads == 0 && contains(kDivideByHeads, arch)) {
    refuse("attention.head_count", "= 0, or none");
  }
  // Of several, those of a layer without attention may be 0; of these, the largest is asked here.
  if (n_heads > 0 && get("attention.head_count_kv") == 0.0 && !arch.starts_with("rwkv") &&
      !arch.starts_with("arwkv")) {
    refuse("attention.head_count_kv", "= 0");
  }
  if (contains(kDivideByExperts, arch) && get("expert_used_count").value_or(0) == 0 &&
      get("expert_feed_forward_length").value_or(0) == 0) {
    refuse("expert_feed_forward_length", "= 0, or none");
  }
}

}  // namespace pronk::inline v0
