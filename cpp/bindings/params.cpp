#include "params.h"

#include <nanobind/stl/string.h>

#include <array>
#include <string>

#include "bindings.h"
#include "errors.h"
#include "keywords.h"
#include "pronk/error.h"

namespace pronk::bindings {
namespace {

using Params = GenerationParams;

template <float SamplingParams::* member>
void set_float(Params& params, nb::handle value, const Argument& argument) {
  params.sampling.*member = static_cast<float>(to_double(value, argument));
}

void set_logit_bias(Params& params, nb::handle value, const Argument& argument) {
  params.sampling.logit_bias.clear();
  if (value.is_none()) return;
  if (!PyMapping_Check(value.ptr()) || !nb::hasattr(value, "items")) {
    throw_invalid_type(argument, value, "None or a mapping of token ids to numbers");
  }
  for (const nb::handle item : value.attr("items")()) {
    const Argument key{"logit_bias", "use token ids of the engine as keys"};
    const Token token = to_int32(item[0], key, 0);
    const double bias =
        to_double(item[1], {"logit_bias", "use numbers as values, -inf to ban a token"});
    params.sampling.logit_bias.emplace_back(token, static_cast<float>(bias));
  }
}

void set_stop(Params& params, nb::handle value, const Argument& argument) {
  params.stop.clear();
  if (value.is_none()) return;
  if (PyUnicode_Check(value.ptr())) {
    params.stop.emplace_back(to_string_view(value, argument));
    return;
  }
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) {
    throw_invalid_type(argument, value, "a str or a list of str");
  }
  for (const nb::handle item : value) params.stop.emplace_back(to_string_view(item, argument));
}

void set_logprobs(Params& params, nb::handle value, const Argument& argument) {
  if (value.is_none() || value.is(Py_False)) {
    params.logprobs = -1;
  } else if (value.is(Py_True)) {
    params.logprobs = 0;
  } else {
    params.logprobs = to_int32(value, argument, 0);
  }
}

constexpr const char* kNoRules =
    "grammar: got an empty text, expected at least a rule 'root', leave it out for free text";
constexpr const char* kNoSchema =
    "json_schema: got an empty text, expected a JSON schema, leave it out for free text";

constexpr std::array kGenerationKeywords = {
    Keyword<Params>{
        {"max_tokens", "pass the most tokens to sample, or None for no limit but the context"},
        [](Params& p, nb::handle v, const Argument& a) {
          p.max_tokens = to_optional_int32(v, a, 0);
        }},
    Keyword<Params>{{"temperature", "pass 0 for greedy sampling, about 0.8 for variety"},
                    &set_float<&SamplingParams::temperature>},
    Keyword<Params>{
        {"top_k", "pass 0 to keep all tokens"},
        [](Params& p, nb::handle v, const Argument& a) { p.sampling.top_k = to_int32(v, a, 0); }},
    Keyword<Params>{{"top_p", "pass 1 to switch it off"}, &set_float<&SamplingParams::top_p>},
    Keyword<Params>{{"min_p", "pass 0 to switch it off"}, &set_float<&SamplingParams::min_p>},
    Keyword<Params>{{"repeat_penalty", "pass 1 to switch it off"},
                    &set_float<&SamplingParams::repeat_penalty>},
    Keyword<Params>{{"frequency_penalty", "pass 0 to switch it off"},
                    &set_float<&SamplingParams::frequency_penalty>},
    Keyword<Params>{{"presence_penalty", "pass 0 to switch it off"},
                    &set_float<&SamplingParams::presence_penalty>},
    Keyword<Params>{{"penalty_last_n", "pass -1 for all tokens, 0 to switch the penalties off"},
                    [](Params& p, nb::handle v, const Argument& a) {
                      p.sampling.penalty_last_n = to_int32(v, a, -1);
                    }},
    Keyword<Params>{{"seed", "pass None to draw a fresh one"},
                    [](Params& p, nb::handle v, const Argument& a) {
                      p.sampling.seed.reset();
                      if (!v.is_none()) p.sampling.seed = to_uint64(v, a);
                    }},
    Keyword<Params>{{"logit_bias", "pass {token_id: bias}"}, &set_logit_bias},
    Keyword<Params>{
        {"ignore_eos", "pass True to never sample an end-of-generation token"},
        [](Params& p, nb::handle v, const Argument& a) { p.sampling.ignore_eos = to_bool(v, a); }},
    Keyword<Params>{{"stop", "pass the texts before which a completion ends"}, &set_stop},
    Keyword<Params>{{"logprobs", "pass True, or how many alternatives to report"}, &set_logprobs},
    Keyword<Params>{{"cache", "pass False to keep this prompt out of the prefix cache"},
                    [](Params& p, nb::handle v, const Argument& a) { p.cache = to_bool(v, a); }},
    Keyword<Params>{
        {"cache_scope", "pass a name shared by those who may share prefixes"},
        [](Params& p, nb::handle v, const Argument& a) { p.cache_scope = to_string_view(v, a); }},
    Keyword<Params>{{"grammar", "pass GBNF, or None for free text"},
                    [](Params& p, nb::handle v, const Argument& a) {
                      p.grammar.clear();
                      if (v.is_none()) return;
                      p.grammar = to_string_view(v, a);
                      if (p.grammar.empty()) throw GrammarError(kNoRules);
                    }},
    Keyword<Params>{{"json_schema", "pass a dict, JSON text or a pydantic model class"},
                    [](Params& p, nb::handle v, const Argument& a) {
                      p.json_schema.clear();
                      if (v.is_none()) return;
                      const nb::object text = python("pronk._structured", "schema_text")(v);
                      p.json_schema = to_string_view(text, a);
                      if (p.json_schema.empty()) throw GrammarError(kNoSchema);
                    }},
};

constexpr std::array kPoolKeywords = {
    Keyword<PoolOptions>{
        {"layout", "pass 'isolated' or 'batched'"},
        [](PoolOptions& o, nb::handle v, const Argument& a) { o.layout = to_string_view(v, a); }},
    Keyword<PoolOptions>{
        {"kv", "pass 'shared', 'split' or 'auto'"},
        [](PoolOptions& o, nb::handle v, const Argument& a) { o.kv = to_string_view(v, a); }},
    Keyword<PoolOptions>{
        {"n_batch", "pass the most tokens of one call of the model, None to have it chosen"},
        [](PoolOptions& o, nb::handle v, const Argument& a) {
          o.n_batch = to_optional_int32(v, a, 1);
        }},
    Keyword<PoolOptions>{{"n_threads", "pass None to use the CPUs of this process"},
                         [](PoolOptions& o, nb::handle v, const Argument& a) {
                           o.n_threads = to_optional_int32(v, a, 1);
                         }},
    Keyword<PoolOptions>{{"flash_attention", "pass 'on', 'off' or 'auto'"},
                         [](PoolOptions& o, nb::handle v, const Argument& a) {
                           o.flash_attention = to_string_view(v, a);
                         }},
    Keyword<PoolOptions>{
        {"type_k", "pass a KV cache type such as 'f16' or 'q8_0'"},
        [](PoolOptions& o, nb::handle v, const Argument& a) { o.type_k = to_string_view(v, a); }},
    Keyword<PoolOptions>{
        {"type_v", "pass a KV cache type such as 'f16' or 'q8_0'"},
        [](PoolOptions& o, nb::handle v, const Argument& a) { o.type_v = to_string_view(v, a); }},
    Keyword<PoolOptions>{{"n_cached", "pass 0 to keep no idle sequences, None to have it chosen"},
                         [](PoolOptions& o, nb::handle v, const Argument& a) {
                           o.n_cached = to_optional_int32(v, a, 0);
                         }},
    Keyword<PoolOptions>{{"cache_tokens", "pass None to keep what there is room for"},
                         [](PoolOptions& o, nb::handle v, const Argument& a) {
                           o.cache_tokens = to_optional_int32(v, a, 0);
                         }},
    Keyword<PoolOptions>{
        {"max_step_ms", "pass milliseconds"},
        [](PoolOptions& o, nb::handle v, const Argument& a) { o.max_step_ms = to_double(v, a); }},
};

bool is_auto(nb::handle value) {
  return PyUnicode_Check(value.ptr()) && PyUnicode_CompareWithASCIIString(value.ptr(), "auto") == 0;
}

}  // namespace

void throw_unknown_keyword(const char* function, std::string_view got,
                           const std::vector<std::string>& allowed) {
  nb::list names;
  std::string all;
  for (const std::string& name : allowed) {
    names.append(nb::str(name.c_str(), name.size()));
    all += (all.empty() ? "" : ", ") + name;
  }
  std::string close;
  const nb::str word(got.data(), got.size());
  for (const nb::handle match : python("difflib", "get_close_matches")(word, names)) {
    close += (close.empty() ? "" : " or ") + nb::cast<std::string>(match);
  }
  throw InvalidTypeError(std::string(function) + ": got an unknown keyword '" + std::string(got) +
                         "', expected one of " + all + ", " +
                         (close.empty() ? "remove it" : "did you mean " + close + "?"));
}

GenerationParams to_generation_params(const nb::kwargs& keywords, const char* function) {
  GenerationParams params;
  set_keywords<GenerationParams>(params, function, keywords, kGenerationKeywords);
  return params;
}

PoolOptions to_pool_options(nb::handle n_ctx, const nb::kwargs& keywords, const char* function) {
  const Argument argument{"n_ctx", "pass the tokens that a permit may use, or 'auto'"};
  PoolOptions options;
  if (is_auto(n_ctx)) {
    options.n_ctx = kAuto;
  } else {
    options.n_ctx = to_optional_int32(n_ctx, argument, 2);
  }
  set_keywords<PoolOptions>(options, function, keywords, kPoolKeywords);
  return options;
}

std::int32_t to_max_concurrent(nb::handle value) {
  if (is_auto(value)) return kAuto;
  return to_int32(value, {"max_concurrent", "pass how many inferences may run at once, or 'auto'"},
                  1, kMostConcurrent);
}

std::int32_t to_priority(nb::handle value) {
  return to_int32(value, {"priority", "pass a higher number to go first"}, -1000, 1000);
}

}  // namespace pronk::bindings
