// Runs a function that recurses deeply: llama.cpp's regular expressions and parsers do, by the
// length of their input.
#pragma once

#include <cstddef>
#include <functional>

namespace pronk::inline v0 {

/// Runs `function` to its end on a thread with a stack of `bytes`, and rethrows what it throws. The
/// stack is reserved, not committed: memory is taken as deep as the recursion goes, and given back
/// afterwards. Throws InsufficientMemoryError when the address space or the thread is not to be
/// had.
void run_on_big_stack(std::size_t bytes, const std::function<void()>& function);

}  // namespace pronk::inline v0
