// JSON from outside: checked before anything that recurses sees it.
#pragma once

#include <string>
#include <string_view>

#include "json.h"

namespace pronk::inline v0 {

/// Parses `text`; `what` names it in messages. Throws InvalidArgumentError when it is not JSON, has
/// more than `max_bytes`, or is nested deeper than 128.
common_json parse_json(const std::string& what, std::string_view text, std::size_t max_bytes);

/// Name of the type of `value`, as JSON calls it.
const char* json_type(const common_json& value);

}  // namespace pronk::inline v0
