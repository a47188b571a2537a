#include "template_limits.h"

#include <stdexcept>
#include <string>

// See cmake/bounded_templates.h.
void pronk_take_template_step();
void pronk_take_template_step() { pronk::TemplateLimits::take_step(); }

namespace pronk::inline v0 {
namespace {

thread_local TemplateLimits* current = nullptr;

std::uintptr_t here() { return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }

}  // namespace

TemplateLimits::TemplateLimits(std::size_t stack, std::uint64_t steps) noexcept
    : lowest_(here() - stack), most_steps_(steps) {
  current = this;
}

TemplateLimits::~TemplateLimits() { current = nullptr; }

void TemplateLimits::take_step() {
  TemplateLimits* const limits = current;
  if (limits == nullptr) return;
  if (limits->beyond_ == Beyond::kNothing) {
    if (here() < limits->lowest_) {
      limits->beyond_ = Beyond::kStack;
    } else if (++limits->steps_ > limits->most_steps_) {
      limits->beyond_ = Beyond::kSteps;
    } else {
      return;
    }
  }
  limits->throw_reason();
}

void TemplateLimits::check() const {
  if (beyond_ != Beyond::kNothing) throw_reason();
}

void TemplateLimits::throw_reason() const {
  if (beyond_ == Beyond::kStack) throw std::runtime_error("macros that call each other too deeply");
  throw std::runtime_error("more than " + std::to_string(most_steps_) + " steps");
}

}  // namespace pronk::inline v0
