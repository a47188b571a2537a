#include <utility>

#include "pronk/testing.h"
#include "scripted_engine.h"

namespace pronk::inline v0::testing {

class ScriptedModel::Impl {
 public:
  explicit Impl(const ScriptedOptions& options)
      : language(std::make_shared<ScriptedLanguage>(options)),
        control(std::make_shared<ScriptedControl>(options.clock)),
        engine(std::make_shared<InferenceEngine>(
            std::make_shared<ScriptedEngine>(options, language, control))) {}

  const std::shared_ptr<ScriptedLanguage> language;
  const std::shared_ptr<ScriptedControl> control;
  const std::shared_ptr<InferenceEngine> engine;
};

ScriptedModel::ScriptedModel(const ScriptedOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

ScriptedModel::~ScriptedModel() { impl_->control->shut_down(); }

std::shared_ptr<InferenceEngine> ScriptedModel::engine() const { return impl_->engine; }

std::vector<Token> ScriptedModel::tokenize(std::string_view bytes) const {
  return impl_->language->tokenize(bytes, false, false);
}

void ScriptedModel::script(const std::vector<Token>& prompt, const std::vector<Token>& completion) {
  impl_->language->script(prompt, completion);
}

void ScriptedModel::script(std::string_view prompt, std::string_view completion) {
  script(impl_->language->tokenize(prompt, true, false), tokenize(completion));
}

std::vector<Token> ScriptedModel::expected(const std::vector<Token>& prompt, std::int32_t n) const {
  return impl_->language->expected(prompt, n);
}

std::vector<Token> ScriptedModel::expected(std::string_view prompt, std::int32_t n) const {
  return expected(impl_->language->tokenize(prompt, true, false), n);
}

void ScriptedModel::add_fault(const Fault& fault) { impl_->control->add_fault(fault); }

void ScriptedModel::clear_faults() { impl_->control->clear_faults(); }

bool ScriptedModel::wait_blocked(std::chrono::nanoseconds timeout, std::int32_t count) const {
  return impl_->control->wait_blocked(timeout, count);
}

void ScriptedModel::release_blocked() { impl_->control->release_blocked(); }

void ScriptedModel::hold() { impl_->control->hold(); }

bool ScriptedModel::wait_held(std::chrono::nanoseconds timeout, std::int32_t count) const {
  return impl_->control->wait_held(timeout, count);
}

void ScriptedModel::step(std::int32_t n) { impl_->control->step(n); }

void ScriptedModel::resume() { impl_->control->resume(); }

bool ScriptedModel::wait_decodes(std::uint64_t count, std::chrono::nanoseconds timeout) const {
  return impl_->control->wait_decodes(count, timeout);
}

void ScriptedModel::set_delay(std::chrono::nanoseconds per_decode,
                              std::chrono::nanoseconds per_item) {
  impl_->control->set_delay(per_decode, per_item);
}

Counters ScriptedModel::counters() const { return impl_->control->counters(); }

std::vector<std::string> ScriptedModel::violations() const { return impl_->control->violations(); }

void ScriptedModel::record(bool on) { impl_->control->record(on); }

std::vector<RecordedBatch> ScriptedModel::batches() const { return impl_->control->batches(); }

std::map<SequenceKey, std::vector<Token>> ScriptedModel::sequences() const {
  return impl_->control->sequences();
}

std::int64_t ScriptedModel::cells_used() const { return impl_->control->cells_used(); }

}  // namespace pronk::inline v0::testing
