// Reads what a model says in its format.
#pragma once

#include <memory>
#include <string>

#include "chat.h"
#include "reply_stream.h"

namespace pronk::inline v0 {

std::unique_ptr<ReplyParser> make_reply_parser(const common_chat_params& params);

}  // namespace pronk::inline v0
