// Included before the interpreter of chat templates in llama.cpp, which bounds neither how deep nor
// how long a template goes: each statement and expression asks first whether it may.
#pragma once

// Throws where the template on this thread is at its limit, see src/template_limits.h.
void pronk_take_template_step();

template <class Context>
Context& pronk_step(Context& context) {
  pronk_take_template_step();
  return context;
}

// Calls pass `ctx`, declarations begin with the type.
#define PRONK_OF_ctx pronk_step(ctx)
#define PRONK_OF_context context
#define execute_impl(argument) execute_impl(PRONK_OF_##argument)
