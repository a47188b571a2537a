// The independent reference for "greedy output equals llama.cpp's own": llama.h only, nothing of
// pronk. Every prompt gets a fresh context with one sequence, one token at a time.
//
// stdin:  one prompt per line, JSON: a string (tokenized with BOS, special tokens parsed) or an
//         array of token ids (used as they are).
// stdout: one JSON value per line. With --info: the model's properties. With --tokenize, which
// needs
//         no weights: per prompt its token ids. Otherwise: per prompt {"prompt_tokens", "tokens",
//         "finish_reason", "text_hex"}, and "top" with --top N.
// An end-of-generation token ends a text and is part of "tokens". Exit code 1 means an error, which
// stderr explains.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "llama-cpp.h"

namespace {

using nlohmann::json;
using Tokens = std::vector<llama_token>;

constexpr const char* usage =
    "usage: reference_greedy MODEL N_PREDICT N_THREADS [--top N] [--ubatch N] [--gpu-layers N]\n"
    "                        [--flash-attention auto|on|off] [--kv-type f16|f32]\n"
    "       reference_greedy MODEL --info\n"
    "       reference_greedy MODEL --tokenize\n";

enum class Mode { kGenerate, kInfo, kTokenize };

struct Options {
  std::string model;
  Mode mode = Mode::kGenerate;
  int n_predict = 0;
  int n_threads = 1;
  int top = 0;
  int n_ubatch = 512;
  int gpu_layers = 0;
  llama_flash_attn_type flash_attention = LLAMA_FLASH_ATTN_TYPE_AUTO;
  ggml_type kv_type = GGML_TYPE_F16;
};

template <typename Value>
Value choose(const std::string& name, const std::string& text,
             const std::map<std::string, Value>& choices) {
  const auto found = choices.find(text);
  if (found == choices.end()) throw std::invalid_argument(name + ": got '" + text + "'\n" + usage);
  return found->second;
}

int parse_number(const std::string& name, const std::string& text, int least) {
  std::size_t used = 0;
  int value = 0;
  try {
    value = std::stoi(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || value < least) {
    throw std::invalid_argument(name + ": got '" + text + "', expected a number of at least " +
                                std::to_string(least) + "\n" + usage);
  }
  return value;
}

Options parse_options(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) throw std::invalid_argument(usage);
  Options options;
  options.model = arguments[0];
  if (arguments.size() == 2) {
    options.mode = choose<Mode>("mode", arguments[1],
                                {{"--info", Mode::kInfo}, {"--tokenize", Mode::kTokenize}});
    return options;
  }
  // Flags come in pairs after the three positional arguments.
  if (arguments.size() % 2 == 0) throw std::invalid_argument(usage);
  options.n_predict = parse_number("N_PREDICT", arguments[1], 0);
  options.n_threads = parse_number("N_THREADS", arguments[2], 1);
  for (std::size_t i = 3; i < arguments.size(); i += 2) {
    const std::string& flag = arguments[i];
    const std::string& value = arguments[i + 1];
    if (flag == "--top") {
      options.top = parse_number(flag, value, 1);
    } else if (flag == "--ubatch") {
      options.n_ubatch = parse_number(flag, value, 1);
    } else if (flag == "--gpu-layers") {
      options.gpu_layers = parse_number(flag, value, 0);
    } else if (flag == "--flash-attention") {
      options.flash_attention =
          choose<llama_flash_attn_type>(flag, value,
                                        {{"auto", LLAMA_FLASH_ATTN_TYPE_AUTO},
                                         {"on", LLAMA_FLASH_ATTN_TYPE_ENABLED},
                                         {"off", LLAMA_FLASH_ATTN_TYPE_DISABLED}});
    } else if (flag == "--kv-type") {
      options.kv_type =
          choose<ggml_type>(flag, value, {{"f16", GGML_TYPE_F16}, {"f32", GGML_TYPE_F32}});
    } else {
      throw std::invalid_argument(usage);
    }
  }
  return options;
}

llama_model_ptr load_model(const Options& options) {
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = options.gpu_layers;
  params.vocab_only = options.mode == Mode::kTokenize;
  llama_model_ptr model(llama_model_load_from_file(options.model.c_str(), params));
  if (!model) throw std::runtime_error("cannot load " + options.model);
  return model;
}

llama_context_ptr make_context(llama_model* model, llama_context_params params) {
  llama_context_ptr context(llama_init_from_model(model, params));
  if (!context) throw std::runtime_error("cannot create a context");
  return context;
}

llama_context_params context_params(const Options& options, std::size_t n_tokens) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(n_tokens);
  params.n_batch = params.n_ubatch = static_cast<uint32_t>(options.n_ubatch);
  params.n_threads = params.n_threads_batch = options.n_threads;
  params.flash_attn_type = options.flash_attention;
  params.type_k = params.type_v = options.kv_type;
  return params;
}

Tokens tokenize(const llama_vocab* vocab, const std::string& text) {
  // A token has at least one byte; a BOS and an EOS may be added.
  Tokens tokens(text.size() + 2);
  const int count =
      llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                     static_cast<int32_t>(tokens.size()), /*add_special=*/true,
                     /*parse_special=*/true);
  if (count < 0) throw std::runtime_error("cannot tokenize '" + text + "'");
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

Tokens read_prompt(const llama_vocab* vocab, const std::string& line) {
  const json prompt = json::parse(line);
  Tokens tokens =
      prompt.is_string() ? tokenize(vocab, prompt.get<std::string>()) : prompt.get<Tokens>();
  if (tokens.empty()) throw std::runtime_error("prompt: got no token, expected at least one");
  for (const llama_token token : tokens) {
    if (token < 0 || token >= llama_vocab_n_tokens(vocab)) {
      throw std::runtime_error("prompt: got token " + std::to_string(token) + ", expected 0 to " +
                               std::to_string(llama_vocab_n_tokens(vocab) - 1));
    }
  }
  return tokens;
}

void decode(llama_context* context, llama_token* tokens, std::size_t count) {
  const int code = llama_decode(context, llama_batch_get_one(tokens, static_cast<int32_t>(count)));
  if (code != 0) throw std::runtime_error("llama_decode returned " + std::to_string(code));
}

void prefill(llama_context* context, Tokens& tokens) {
  const std::size_t chunk = llama_n_ubatch(context);
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    decode(context, tokens.data() + begin, std::min(chunk, tokens.size() - begin));
  }
}

// The logits after the last decoded token.
std::vector<float> last_logits(llama_context* context, const llama_vocab* vocab) {
  const float* logits = llama_get_logits_ith(context, -1);
  if (logits == nullptr) throw std::runtime_error("the model gives no logits");
  std::vector<float> copy(logits, logits + llama_vocab_n_tokens(vocab));
  if (std::any_of(copy.begin(), copy.end(), [](float x) { return std::isnan(x); })) {
    throw std::runtime_error("the model's logits are not numbers");
  }
  return copy;
}

// [[token, logit], ...], the highest first; of equal ones the lower id first.
json top_logits(const std::vector<float>& logits, int count) {
  Tokens order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto n = std::min(static_cast<std::size_t>(count), order.size());
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(n);
  std::partial_sort(order.begin(), middle, order.end(), [&](llama_token a, llama_token b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  json result = json::array();
  for (std::size_t i = 0; i < n; ++i) result.push_back({order[i], logits[order[i]]});
  return result;
}

std::string to_hex(const std::string& bytes) {
  constexpr const char* digits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex += digits[byte / 16];
    hex += digits[byte % 16];
  }
  return hex;
}

std::string piece(const llama_vocab* vocab, llama_token token) {
  std::string text(256, '\0');
  for (;;) {
    const int size = llama_token_to_piece(vocab, token, text.data(),
                                          static_cast<int32_t>(text.size()), 0, false);
    text.resize(static_cast<std::size_t>(std::abs(size)));
    if (size >= 0) return text;
  }
}

json generate(llama_model* model, const Options& options, Tokens prompt) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const auto n_predict = static_cast<std::size_t>(options.n_predict);
  const llama_context_ptr context =
      make_context(model, context_params(options, prompt.size() + n_predict));
  if (llama_get_memory(context.get()) == nullptr) {
    throw std::runtime_error("the model has no memory, so it cannot generate");
  }
  json result = {{"prompt_tokens", prompt}, {"finish_reason", "length"}};
  if (options.top > 0) result["top"] = json::array();
  prefill(context.get(), prompt);

  Tokens tokens;
  std::string text;
  while (tokens.size() < n_predict) {
    if (!tokens.empty()) decode(context.get(), &tokens.back(), 1);
    const std::vector<float> logits = last_logits(context.get(), vocab);
    if (options.top > 0) result["top"].push_back(top_logits(logits, options.top));
    // max_element returns the first of equal ones: the lowest id.
    const auto best = std::max_element(logits.begin(), logits.end());
    tokens.push_back(static_cast<llama_token>(best - logits.begin()));
    if (llama_vocab_is_eog(vocab, tokens.back())) {
      result["finish_reason"] = "stop";
      break;
    }
    text += piece(vocab, tokens.back());
  }
  result["tokens"] = tokens;
  result["text_hex"] = to_hex(text);
  return result;
}

// Whether a sequence of eight tokens can be cut back to seven when the context keeps `n_rs_seq`
// snapshots of a recurrent state.
bool can_step_back(llama_model* model, uint32_t n_rs_seq) {
  llama_context_params params = context_params(Options{}, 256);
  params.n_rs_seq = n_rs_seq;
  const llama_context_ptr context = make_context(model, params);
  Tokens tokens(8, 0);
  decode(context.get(), tokens.data(), tokens.size());
  return llama_memory_seq_rm(llama_get_memory(context.get()), 0, 7, -1);
}

json describe(llama_model* model) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  json eog = json::array();
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    if (llama_vocab_is_eog(vocab, token)) eog.push_back(token);
  }
  const llama_context_ptr context = make_context(model, context_params(Options{}, 256));
  const bool has_memory = llama_get_memory(context.get()) != nullptr;
  return {{"is_recurrent", llama_model_is_recurrent(model)},
          {"is_hybrid", llama_model_is_hybrid(model)},
          {"n_swa", llama_model_n_swa(model)},
          {"has_memory", has_memory},
          {"can_step_back", has_memory && can_step_back(model, 0)},
          {"can_step_back_with_snapshot", has_memory && can_step_back(model, 1)},
          {"n_ctx_train", llama_model_n_ctx_train(model)},
          {"n_vocab", llama_vocab_n_tokens(vocab)},
          {"add_bos", llama_vocab_get_add_bos(vocab)},
          {"bos", llama_vocab_bos(vocab)},
          {"eos", llama_vocab_eos(vocab)},
          {"eot", llama_vocab_eot(vocab)},
          {"eog", eog},
          {"has_chat_template", llama_model_chat_template(model, nullptr) != nullptr}};
}

void run(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  const llama_model_ptr model = load_model(options);
  if (options.mode == Mode::kInfo) {
    std::cout << describe(model.get()) << std::endl;
    return;
  }
  for (std::string line; std::getline(std::cin, line);) {
    Tokens prompt = read_prompt(llama_model_get_vocab(model.get()), line);
    const json result = options.mode == Mode::kTokenize
                            ? json(prompt)
                            : generate(model.get(), options, std::move(prompt));
    std::cout << result << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  try {
    run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::cerr << "reference_greedy: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
