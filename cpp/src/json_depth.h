// How deep a JSON text is nested, without parsing it.
#pragma once

#include <cstddef>
#include <string_view>

namespace pronk::inline v0 {

/// Most brackets open at once, those in strings not counted. Right for valid JSON; for other text
/// it says nothing.
std::size_t json_depth(std::string_view text);

}  // namespace pronk::inline v0
