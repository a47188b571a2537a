#include "structured.h"

#include <nanobind/stl/string_view.h>

#include <string_view>
#include <utility>

#include "bindings.h"
#include "pronk/error.h"

namespace pronk::bindings {

nb::kwargs with_response_format(const nb::kwargs& keywords, nb::handle response_format) {
  if (response_format.is_none()) return keywords;
  const nb::object schema = python("pronk._structured", "response_schema")(response_format);
  if (schema.is_none()) return keywords;
  nb::kwargs result;
  for (const auto [key, value] : keywords) {
    if (nb::cast<std::string_view>(key) == "json_schema" && !value.is_none()) {
      throw InvalidArgumentError(
          "response_format: got one beside a json_schema, expected one of the two, leave the other "
          "out");
    }
    result[key] = value;
  }
  result["json_schema"] = schema;
  return result;
}

nb::object with_schema(Generation generation, const nb::kwargs& keywords) {
  nb::object result = nb::cast(std::move(generation));
  if (keywords.contains("json_schema")) {
    python("pronk._structured", "remember")(result, keywords["json_schema"]);
  }
  return result;
}

nb::object with_schema_of(nb::handle generation, Completion completion) {
  const bool is_json = completion.is_json;
  nb::object result = nb::cast(std::move(completion));
  if (is_json) python("pronk._structured", "hand_over")(generation, result);
  return result;
}

}  // namespace pronk::bindings
