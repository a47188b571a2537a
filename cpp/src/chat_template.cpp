#include "chat_template.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <new>
#include <utility>

#include "big_stack.h"
#include "default_template.h"
#include "engine_impl.h"
#include "log.h"
#include "pronk/error.h"
#include "template_limits.h"
#include "utf8.h"

namespace pronk::inline v0 {

namespace {

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxBrackets = std::size_t{1} << 16;
// Operators nest without brackets, within one tag.
constexpr std::size_t kMaxTagBytes = std::size_t{1} << 15;
// Parsing and rendering recurse with the nesting of the template, which its brackets bound, and
// macros with what they are called with, as the nesting of the tools' schemas.
constexpr std::size_t kBaseStack = std::size_t{64} << 20;
constexpr std::size_t kStackPerBracket = std::size_t{4} << 10;
// Of the stack, what the functions of the interpreter need that are no steps.
constexpr std::size_t kLeafStack = kBaseStack / 2;
// Of a few seconds; a message takes some hundred.
constexpr std::uint64_t kMaxSteps = 2'000'000;
constexpr std::size_t kMaxRecent = 8;

std::size_t stack_for(const std::string& source) {
  if (source.size() > kMaxTemplateBytes) {
    throw InvalidArgumentError("chat_template: got " + std::to_string(source.size()) +
                               " bytes, expected at most " + std::to_string(kMaxTemplateBytes) +
                               ", use a shorter one");
  }
  if (const std::size_t at = find_invalid_utf8(source); at != std::string_view::npos) {
    throw InvalidArgumentError("chat_template: got invalid UTF-8 at byte " + std::to_string(at) +
                               ", expected UTF-8, decode it first");
  }
  const auto brackets = static_cast<std::size_t>(std::count_if(
      source.begin(), source.end(), [](char c) { return c == '(' || c == '[' || c == '{'; }));
  if (brackets > kMaxBrackets) {
    throw InvalidArgumentError("chat_template: got " + std::to_string(brackets) +
                               " brackets, expected at most " + std::to_string(kMaxBrackets) +
                               ", use a simpler one");
  }
  for (std::size_t at = 0; (at = source.find('{', at)) != std::string::npos; ++at) {
    if (at + 1 == source.size() || (source[at + 1] != '{' && source[at + 1] != '%')) continue;
    const std::size_t end = source.find(source[at + 1] == '{' ? "}}" : "%}", at);
    const std::size_t length = std::min(end, source.size()) - at;
    if (length > kMaxTagBytes) {
      throw InvalidArgumentError("chat_template: got a tag of " + std::to_string(length) +
                                 " bytes, expected at most " + std::to_string(kMaxTagBytes) +
                                 ", cut it in several");
    }
    // llama.cpp divides without a look at the divisor, and dies of a 0.
    if (std::string_view(source).substr(at, length).find("divisibleby") != std::string_view::npos) {
      throw InvalidArgumentError(
          "chat_template: got the test 'divisibleby', expected one that pronk lets through, write "
          "'x % y == 0'");
    }
  }
  return kBaseStack + brackets * kStackPerBracket;
}

[[noreturn]] void throw_template_error(const std::exception& error) {
  std::string reason = error.what();
  // The rest shows the place in the template.
  constexpr std::size_t kLongest = 2000;
  if (reason.size() > kLongest) reason.resize(kLongest);
  std::string text;
  Utf8Decoder decoder;
  decoder.push(reason, text);
  throw InvalidArgumentError("chat_template: got '" + text +
                             "' from the template, expected it to render the chat, "
                             "change the messages or pass another chat_template");
}

// Not thread-safe, hence once.
void silence_common() {
  static const bool done = [] {
    common_log_set_verbosity_thold(-1);
    return true;
  }();
  (void)done;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, const std::string& bos,
                           const std::string& eos)
    : source_(source), stack_(stack_for(source)) {
  silence_common();
  if (source_.empty()) {
    throw InvalidArgumentError(
        "chat_template: got an empty text, expected a Jinja template, leave it out");
  }
  on_stack([&] {
    templates_ = common_chat_templates_init(nullptr, source_, bos, eos);
    capabilities_ = common_chat_templates_get_caps(templates_.get());
  });
}

void ChatTemplate::on_stack(const std::function<void()>& function) const {
  try {
    run_on_big_stack(stack_, [&] {
      const TemplateLimits limits(stack_ - kLeafStack, kMaxSteps);
      function();
      limits.check();
    });
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw InsufficientMemoryError(
        "chat_template: got too little memory, expected enough to render the chat, shorten it");
  } catch (const std::exception& error) {
    throw_template_error(error);
  }
}

common_chat_params ChatTemplate::apply(const common_chat_templates_inputs& inputs) const {
  common_chat_params result;
  const std::lock_guard lock(mutex_);
  on_stack([&] { result = common_chat_templates_apply(templates_.get(), inputs); });
  return result;
}

bool ChatTemplate::supports(const char* capability) const {
  const auto found = capabilities_.find(capability);
  return found != capabilities_.end() && found->second;
}

ChatTemplates::ChatTemplates(const InferenceEngine& engine) {
  const ModelInfo& info = engine.info();
  const EngineImpl& impl = engine.impl();
  const auto spelled = [&](Token token) {
    std::string text;
    if (token >= 0 && token < info.n_vocab) impl.append_piece(token, true, text);
    return text;
  };
  for (Token token = 0; token < info.n_vocab; ++token) {
    std::string text;
    impl.append_piece(token, false, text);
    if (!text.empty()) continue;
    impl.append_piece(token, true, text);
    // A mark has to fit in between two characters.
    const bool several = std::count_if(text.begin(), text.end(),
                                       [](unsigned char c) { return (c & 0xc0) != 0x80; }) > 1;
    if (several) spellings_.push_back(std::move(text));
  }
  bos_ = spelled(info.bos);
  eos_ = spelled(info.eos);
  own_ = info.chat_template;
  const auto tools = info.metadata.find("tokenizer.chat_template.tool_use");
  if (tools != info.metadata.end()) own_with_tools_ = tools->second;
}

std::shared_ptr<const ChatTemplate> ChatTemplates::parsed(const std::string& source) {
  const auto is_it = [&](const auto& known) { return known->source() == source; };
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(recent_.begin(), recent_.end(), is_it);
    if (found != recent_.end()) return *found;
  }
  auto made = std::make_shared<const ChatTemplate>(source, bos_, eos_);
  const std::lock_guard lock(mutex_);
  if (std::none_of(recent_.begin(), recent_.end(), is_it)) {
    recent_.push_front(made);
    if (recent_.size() > kMaxRecent) recent_.pop_back();
  }
  return made;
}

std::shared_ptr<const ChatTemplate> ChatTemplates::get(const std::string& override_source,
                                                       bool tools) {
  if (!override_source.empty()) return parsed(override_source);
  if (tools && !own_with_tools_.empty()) return parsed(own_with_tools_);
  if (own_.empty()) return parsed(kChatMlWithTools);
  auto own = parsed(own_);
  if (!tools || own->supports("supports_tools")) return own;
  if (own_.find("<|im_start|>") != std::string::npos) return parsed(kChatMlWithTools);
  throw InvalidArgumentError(
      "tools: got some for a model whose chat template has no place for tools, expected one that "
      "does, pass a chat_template that writes them");
}

std::shared_ptr<ChatTemplates> chat_templates(const InferenceEngine& engine) {
  EngineImpl& impl = engine.impl();
  const std::lock_guard lock(impl.lazy_mutex);
  if (!impl.chat_templates) impl.chat_templates = std::make_shared<ChatTemplates>(engine);
  return impl.chat_templates;
}

}  // namespace pronk::inline v0
