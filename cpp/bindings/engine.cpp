// A loaded model.
#include "pronk/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "bindings.h"
#include "chat.h"
#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "log.h"
#include "params.h"
#include "prompt.h"
#include "record.h"
#include "signals.h"

namespace pronk::bindings {
namespace {

// Text out of a model file or a driver: UTF-8 by convention only.
nb::object text(std::string_view bytes) {
  return nb::steal(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

std::optional<std::int32_t> to_gpu_layers(nb::handle value) {
  const Argument argument{"n_gpu_layers", "pass 0 for none, -1 for all"};
  if (PyUnicode_Check(value.ptr())) {
    if (to_string_view(value, argument) == "auto") return std::nullopt;
    throw_invalid_value(argument, value, "\"auto\" or an integer >= -1");
  }
  return to_int32(value, argument, -1);
}

// Reports to Python from inside the load, which runs without the GIL on the calling thread.
class Progress {
 public:
  Progress(DetachGil& gil, nb::handle callback) : gil_(gil), callback_(callback) {}

  bool operator()(float fraction) {
    const auto now = std::chrono::steady_clock::now();
    if (callback_.is_none() && now - last_ < kSignalSlice) return true;
    last_ = now;
    gil_.attach();
    bool go_on = true;
    try {
      if (is_main_thread()) check_signals();
      if (!callback_.is_none()) go_on = !callback_(fraction).is(Py_False);
    } catch (...) {
      error_ = std::current_exception();  // must not unwind llama.cpp's frames
      go_on = false;
    }
    gil_.detach();
    return go_on;
  }

  /// Throws what the callback threw. Needs the GIL.
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  DetachGil& gil_;
  const nb::handle callback_;
  std::chrono::steady_clock::time_point last_{};
  std::exception_ptr error_;
};

std::shared_ptr<InferenceEngine> load(nb::handle path, nb::handle n_gpu_layers, nb::handle use_mmap,
                                      nb::handle use_mlock, nb::handle check_tensors,
                                      nb::handle vocab_only, nb::handle probe,
                                      nb::handle progress) {
  LoadOptions options;
  const std::string file = to_path(path, {"path", "pass the path of a GGUF file"});
  options.n_gpu_layers = to_gpu_layers(n_gpu_layers);
  options.use_mmap =
      to_bool(use_mmap, {"use_mmap", "pass False to read the file instead of mapping it"});
  options.use_mlock = to_bool(use_mlock, {"use_mlock", "pass True to keep the model in RAM"});
  options.check_tensors =
      to_bool(check_tensors, {"check_tensors", "pass True to validate the tensors"});
  options.vocab_only = to_bool(vocab_only, {"vocab_only", "pass True to tokenize only"});
  const bool try_first =
      to_bool(probe, {"probe", "pass True to try the file in a process of its own first"});
  const nb::object reporter = python("pronk._progress", "reporter")(progress);
  if (try_first) {
    nb::dict trial;
    trial["n_gpu_layers"] = options.n_gpu_layers ? nb::object(nb::int_(*options.n_gpu_layers))
                                                 : nb::object(nb::str("auto"));
    trial["use_mmap"] = options.use_mmap;
    trial["check_tensors"] = options.check_tensors;
    trial["vocab_only"] = options.vocab_only;
    python("pronk._probe", "check")(path, trial);
  }
  // Closes the progress bar, if there is one, in every case.
  const nb::object callback = reporter.attr("__enter__")();

  std::shared_ptr<InferenceEngine> engine;
  std::exception_ptr error;
  {
    LogScope log;
    DetachGil detached;
    Progress report(detached, callback);
    options.progress = [&report](float fraction) { return report(fraction); };
    try {
      engine = InferenceEngine::load(file, options);
    } catch (...) {
      error = std::current_exception();
    }
    detached.attach();
    try {
      report.rethrow();
    } catch (...) {
      error = std::current_exception();
    }
  }
  reporter.attr("__exit__")(nb::none(), nb::none(), nb::none());
  if (error) {
    try {
      std::rethrow_exception(error);
    } catch (const ModelLoadError& load_error) {
      raise_model_load_error(load_error, path);
    }
  }
  return engine;
}

std::vector<Token> tokenize(const InferenceEngine& self, nb::handle value, nb::handle add_special,
                            nb::handle parse_special) {
  const std::string_view bytes =
      to_string_view(value, {"text", "encode with errors='replace' and decode it again"});
  const bool add = to_bool(add_special, {"add_special", "pass False to leave BOS and EOS out"});
  const bool parse = to_bool(parse_special, {"parse_special", "pass True to read control tokens"});
  DetachGil detached;
  return self.tokenize(bytes, add, parse);
}

nb::object detokenize(const InferenceEngine& self, nb::handle tokens, nb::handle special) {
  const std::vector<Token> ids = to_tokens(tokens, "tokens");
  const bool spell = to_bool(special, {"special", "pass True to spell out control tokens"});
  return text(self.detokenize(ids, spell));
}

nb::object render_chat(const InferenceEngine& self, nb::handle messages, nb::handle tools,
                       nb::handle tool_choice, nb::handle parallel_tool_calls,
                       nb::handle chat_template, nb::handle template_kwargs) {
  const ChatParams params =
      to_chat_params(tools, tool_choice, parallel_tool_calls, chat_template, template_kwargs);
  const std::string json = to_messages(messages);
  std::string rendered;
  {
    DetachGil detached;
    rendered = self.render_chat(json, params);
  }
  return text(rendered);
}

std::vector<Token> tokenize_chat(const InferenceEngine& self, nb::handle messages, nb::handle tools,
                                 nb::handle tool_choice, nb::handle parallel_tool_calls,
                                 nb::handle chat_template, nb::handle template_kwargs) {
  const ChatParams params =
      to_chat_params(tools, tool_choice, parallel_tool_calls, chat_template, template_kwargs);
  const std::string json = to_messages(messages);
  DetachGil detached;
  return self.tokenize_chat(json, params);
}

MemoryEstimate estimate_memory(const InferenceEngine& self, nb::handle n_ctx,
                               nb::handle max_concurrent, const nb::kwargs& keywords) {
  const PoolOptions options = to_pool_options(n_ctx, keywords, "estimate_memory");
  const std::int32_t n = to_max_concurrent(max_concurrent);
  LogScope log;
  DetachGil detached;
  return self.estimate_memory(n, options);
}

nb::object token_or_none(Token token) {
  return token < 0 ? nb::object(nb::none()) : nb::object(nb::int_(token));
}

const char* name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kNone:
      return "none";
    case MemoryKind::kPlain:
      return "plain";
    case MemoryKind::kSlidingWindow:
      return "sliding_window";
    case MemoryKind::kRecurrent:
      return "recurrent";
    case MemoryKind::kHybrid:
      return "hybrid";
  }
  return "unknown";
}

void bind_device(nb::module_& m) {
  nb::class_<Device> cls(m, "Device",
                         "Something that computes.\n\n"
                         "Example:\n"
                         "    >>> {device.name: device.memory_free for device in pronk.devices()}");
  cls.def_prop_ro(
         "name", [](const Device& self) { return text(self.name); },
         nb::sig("def name(self) -> str"), "'CPU', 'CUDA0', 'Metal', ...")
      .def_prop_ro(
          "description", [](const Device& self) { return text(self.description); },
          nb::sig("def description(self) -> str"), "As the driver reports it.")
      .def_ro("kind", &Device::kind, "'cpu', 'gpu', 'igpu' or 'accel'.")
      .def_ro("memory_total", &Device::memory_total, "Bytes.")
      .def_ro("memory_free", &Device::memory_free, "Bytes.");
  bind_record(cls, "Device", {"name", "description", "kind", "memory_total", "memory_free"});
  m.def("devices", &devices,
        "Return all devices that this build can use, the CPU last.\n\n"
        "Example:\n"
        "    >>> [device.name for device in pronk.devices()]\n"
        "    ['CPU']");
}

constexpr const char* kLoadDoc =
    "Load a GGUF file. Other threads run meanwhile, Ctrl-C stops it.\n\n"
    "Args:\n"
    "    path: The file; of a model in parts, the first.\n"
    "    n_gpu_layers: Layers to place on the GPU: a number, -1 for all, or 'auto' for all if "
    "there is a\n"
    "        GPU.\n"
    "    use_mmap: Map the file instead of reading it.\n"
    "    use_mlock: Keep the model in RAM.\n"
    "    check_tensors: Validate the tensor data: slower.\n"
    "    vocab_only: Load what tokenizing needs, nothing else.\n"
    "    probe: First load the file and generate a token in a process of its own. A crafted or "
    "damaged file\n"
    "        on which llama.cpp would end the process ends that one, which raises ModelLoadError. "
    "Takes as\n"
    "        long again as the load, and a second for the other interpreter.\n"
    "    progress: True for a progress bar on a terminal, or a function that is called on this "
    "thread with\n"
    "        the fraction done, 0.0 to 1.0; returning False cancels the load.\n\n"
    "Raises:\n"
    "    pronk.ModelLoadError: The file cannot be opened, is no usable model, or the load was "
    "cancelled.\n"
    "        Also an OSError and a ValueError; has errno and filename.\n"
    "    pronk.InsufficientMemoryError: The model does not fit into memory.\n\n"
    "Example:\n"
    "    >>> engine = pronk.InferenceEngine.load('model.gguf', progress=True)";

}  // namespace

void bind_engine(nb::module_& m) {
  using E = InferenceEngine;
  bind_device(m);
  nb::class_<E>(m, "InferenceEngine", nb::is_weak_referenceable(),
                "A loaded model: weights, vocabulary, chat template. Immutable, may be shared by "
                "schedulers and\n"
                "used from any thread. Schedulers keep it alive.\n\n"
                "Example:\n"
                "    >>> engine = pronk.InferenceEngine.load(pronk.default_model())\n"
                "    >>> engine.detokenize(engine.tokenize('Once upon a time'))\n"
                "    'Once upon a time'")
      .def_static(
          "load", &load, unchecked("path"), nb::kw_only(), unchecked("n_gpu_layers") = "auto",
          unchecked("use_mmap") = true, unchecked("use_mlock") = false,
          unchecked("check_tensors") = false, unchecked("vocab_only") = false,
          unchecked("probe") = false, unchecked("progress") = nb::none(),
          nb::sig(
              "def load(path: str | os.PathLike[str], *, n_gpu_layers: int | "
              "typing.Literal['auto'] = 'auto', use_mmap: bool = True, use_mlock: bool = False, "
              "check_tensors: bool = False, vocab_only: bool = False, probe: bool = False, "
              "progress: bool | collections.abc.Callable[[float], object] | None = None) -> "
              "InferenceEngine"),
          kLoadDoc)
      .def("tokenize", &tokenize, unchecked("text"), nb::kw_only(), unchecked("add_special") = true,
           unchecked("parse_special") = false,
           nb::sig("def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool "
                   "= False) -> "
                   "list[int]"),
           "Return the token ids of ``text``.\n\n"
           "Args:\n"
           "    text: Any str that UTF-8 can encode.\n"
           "    add_special: Add BOS and EOS as the model wants them.\n"
           "    parse_special: Read control tokens out of the text; otherwise their spelling stays "
           "text.\n\n"
           "Raises:\n"
           "    pronk.InvalidArgumentError: The text holds a lone surrogate.")
      .def("detokenize", &detokenize, unchecked("tokens"), nb::kw_only(),
           unchecked("special") = false,
           nb::sig("def detokenize(self, tokens: collections.abc.Sequence[int], *, special: bool = "
                   "False) -> str"),
           "Return the text of ``tokens``; bytes that are not UTF-8 become U+FFFD.\n\n"
           "Args:\n"
           "    tokens: Ids in [0, n_vocab).\n"
           "    special: Spell out control tokens instead of leaving them out.\n\n"
           "Raises:\n"
           "    pronk.InvalidArgumentError: An id is out of range.")
      .def(
          "render_chat", &render_chat, unchecked("messages"), nb::kw_only(),
          unchecked("tools") = nb::none(), unchecked("tool_choice") = "auto",
          unchecked("parallel_tool_calls") = nb::none(), unchecked("chat_template") = nb::none(),
          unchecked("template_kwargs") = nb::none(),
          nb::sig("def render_chat(self, messages: "
                  "collections.abc.Sequence[collections.abc.Mapping[str, typing.Any]], "
                  "*, " PRONK_CHAT_KEYWORDS ") -> str"),
          "Return the prompt that ``chat()`` makes of ``messages``, as text.\n\n"
          "What looks like a control token in a message stays text when it is tokenized, which the "
          "text\n"
          "does not show: see tokenize_chat().\n\n"
          "Args:\n" PRONK_CHAT_ARGS
          "\n"
          "Raises:\n"
          "    pronk.InvalidArgumentError: As chat() does.\n\n"
          "Example:\n"
          "    >>> engine.render_chat([{'role': 'user', 'content': 'Hi'}])\n"
          "    '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'")
      .def("tokenize_chat", &tokenize_chat, unchecked("messages"), nb::kw_only(),
           unchecked("tools") = nb::none(), unchecked("tool_choice") = "auto",
           unchecked("parallel_tool_calls") = nb::none(), unchecked("chat_template") = nb::none(),
           unchecked("template_kwargs") = nb::none(),
           nb::sig("def tokenize_chat(self, messages: "
                   "collections.abc.Sequence[collections.abc.Mapping[str, typing.Any]], "
                   "*, " PRONK_CHAT_KEYWORDS ") -> list[int]"),
           "Return the prompt that ``chat()`` makes of ``messages``, as token ids.\n\n"
           "Args:\n" PRONK_CHAT_ARGS
           "\n"
           "Raises:\n"
           "    pronk.InvalidArgumentError: As chat() does.\n\n"
           "Example:\n"
           "    >>> n = len(engine.tokenize_chat(messages, tools=tools))")
      .def(
          "estimate_memory", &estimate_memory, unchecked("n_ctx") = nb::none(),
          unchecked("max_concurrent") = 1, nb::arg("pool_options"),
          nb::sig("def estimate_memory(self, n_ctx: int | typing.Literal['auto'] | None = None, "
                  "max_concurrent: int | typing.Literal['auto'] = 1, *, " PRONK_POOL_KEYWORDS
                  ") -> MemoryEstimate"),
          "Return what a pool of these options would take of each device, before it is made.\n\n"
          "By llama.cpp's own accounting, from contexts made on trial without their memory. See\n"
          "docs/memory.md for what is counted and how exact it is.\n\n"
          "Args:\n"
          "    max_concurrent: Permits, in [1, 4096], or 'auto'.\n" PRONK_POOL_ARGS
          "\n"
          "Raises:\n"
          "    pronk.InvalidArgumentError: A value is out of range.\n"
          "    pronk.BackendError: llama.cpp cannot make such a context.\n"
          "    pronk.InsufficientMemoryError: There is too little memory even for the estimate.\n\n"
          "Example:\n"
          "    >>> estimate = engine.estimate_memory(8192, 4, type_k='q8_0', type_v='q8_0')\n"
          "    >>> {d.device: f'{d.kv / 1e6:.0f} MB' for d in estimate.devices}")
      .def_prop_ro(
          "path",
          [](const E& self) {
            const std::string& path = self.info().path;
            return nb::steal(PyUnicode_DecodeFSDefaultAndSize(
                path.data(), static_cast<Py_ssize_t>(path.size())));
          },
          nb::sig("def path(self) -> str"), "The file it was loaded from.")
      .def_prop_ro(
          "architecture", [](const E& self) { return text(self.info().architecture); },
          nb::sig("def architecture(self) -> str"), "Of the model: 'llama', 'qwen2', ...")
      .def_prop_ro(
          "description", [](const E& self) { return text(self.info().description); },
          nb::sig("def description(self) -> str"), "Architecture, size and quantisation in words.")
      .def_prop_ro(
          "metadata",
          [](const E& self) {
            nb::dict result;
            for (const auto& [key, value] : self.info().metadata) result[text(key)] = text(value);
            return result;
          },
          nb::sig("def metadata(self) -> dict[str, str]"),
          "All key/value pairs of the GGUF file, as text.")
      .def_prop_ro(
          "size", [](const E& self) { return self.info().size_bytes; }, "Bytes of all tensors.")
      .def_prop_ro(
          "n_params", [](const E& self) { return self.info().n_params; }, "Number of parameters.")
      .def_prop_ro(
          "n_vocab", [](const E& self) { return self.info().n_vocab; },
          "Number of tokens in the vocabulary.")
      .def_prop_ro(
          "n_ctx_train", [](const E& self) { return self.info().n_ctx_train; },
          "Tokens of context that the model was trained on.")
      .def_prop_ro(
          "n_embd", [](const E& self) { return self.info().n_embd; }, "Width of the model.")
      .def_prop_ro(
          "n_layer", [](const E& self) { return self.info().n_layer; }, "Layers in all.")
      .def_prop_ro(
          "n_head", [](const E& self) { return self.info().n_head; }, "Attention heads.")
      .def_prop_ro(
          "n_head_kv", [](const E& self) { return self.info().n_head_kv; }, "Key/value heads.")
      .def_prop_ro(
          "n_gpu_layers", [](const E& self) { return self.info().n_gpu_layers; },
          "Layers that really are on a GPU.")
      .def_prop_ro(
          "n_swa", [](const E& self) { return self.info().n_swa; },
          "Sliding attention window in tokens, 0 for none.")
      .def_prop_ro(
          "memory_kind", [](const E& self) { return name_of(self.info().memory_kind); },
          nb::sig("def memory_kind(self) -> typing.Literal['none', 'plain', 'sliding_window', "
                  "'recurrent', "
                  "'hybrid']"),
          "What the model remembers, which decides which prefixes can be reused: 'plain', "
          "'sliding_window',\n"
          "'recurrent', 'hybrid', or 'none' for a vocabulary.")
      .def_prop_ro(
          "bos", [](const E& self) { return token_or_none(self.info().bos); },
          nb::sig("def bos(self) -> int | None"), "Id of the beginning-of-sequence token.")
      .def_prop_ro(
          "eos", [](const E& self) { return token_or_none(self.info().eos); },
          nb::sig("def eos(self) -> int | None"), "Id of the end-of-sequence token.")
      .def_prop_ro(
          "eot", [](const E& self) { return token_or_none(self.info().eot); },
          nb::sig("def eot(self) -> int | None"), "Id of the end-of-turn token.")
      .def_prop_ro(
          "add_bos", [](const E& self) { return self.info().add_bos; },
          "Whether prompts begin with BOS.")
      .def_prop_ro(
          "chat_template",
          [](const E& self) -> nb::object {
            if (self.info().chat_template.empty()) return nb::none();
            return text(self.info().chat_template);
          },
          nb::sig("def chat_template(self) -> str | None"),
          "The model's own, a Jinja text; None without one.")
      .def_prop_ro("devices", &E::devices, "The devices that hold layers of this model.")
      .def("__repr__", [](const E& self) {
        return "<pronk.InferenceEngine " + nb::cast<std::string>(text(self.info().description)) +
               ">";
      });
}

}  // namespace pronk::bindings
