// JSON that a generation has to give, and what becomes of it in Python.
#pragma once

#include <nanobind/nanobind.h>

#include "pronk/completion.h"
#include "pronk/generation.h"

namespace pronk::bindings {

/// The keywords of chat() with the schema that `response_format` asks for.
nanobind::kwargs with_response_format(const nanobind::kwargs& keywords,
                                      nanobind::handle response_format);
/// The generation as Python sees it. Its completion is parsed as the model class that the keyword
/// json_schema may be.
nanobind::object with_schema(Generation generation, const nanobind::kwargs& keywords);
/// The completion of `generation` as Python sees it.
nanobind::object with_schema_of(nanobind::handle generation, Completion completion);

}  // namespace pronk::bindings
