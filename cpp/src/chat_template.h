// A chat template, parsed, and those of an engine.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "chat.h"
#include "pronk/engine.h"

namespace pronk::inline v0 {

class ChatTemplate {
 public:
  /// Throws InvalidArgumentError.
  ChatTemplate(const std::string& source, const std::string& bos, const std::string& eos);

  /// Renders, and finds out how the answer has to be read. Throws InvalidArgumentError.
  common_chat_params apply(const common_chat_templates_inputs& inputs) const;

  bool supports(const char* capability) const;
  const std::string& source() const noexcept { return source_; }

 private:
  void on_stack(const std::function<void()>& function) const;

  const std::string source_;
  const std::size_t stack_;
  mutable std::mutex mutex_;                  // a parsed template remembers things while it renders
  common_chat_templates_ptr templates_;       // guarded by mutex_
  std::map<std::string, bool> capabilities_;  // constant once constructed
};

/// What chats with one engine share. Thread-safe.
class ChatTemplates {
 public:
  explicit ChatTemplates(const InferenceEngine& engine);

  /// The template to use: `override_source`, or the model's own. Throws InvalidArgumentError.
  std::shared_ptr<const ChatTemplate> get(const std::string& override_source, bool tools);

  /// How the model's control tokens are spelled.
  const std::vector<std::string>& spellings() const noexcept { return spellings_; }
  const std::string& bos() const noexcept { return bos_; }

 private:
  std::shared_ptr<const ChatTemplate> parsed(const std::string& source);

  std::vector<std::string> spellings_;
  std::string bos_, eos_;
  std::string own_, own_with_tools_;  // empty where the model has none
  std::mutex mutex_;
  std::deque<std::shared_ptr<const ChatTemplate>> recent_;  // guarded by mutex_; newest first
};

/// Those of `engine`, made at the first use.
std::shared_ptr<ChatTemplates> chat_templates(const InferenceEngine& engine);

}  // namespace pronk::inline v0
