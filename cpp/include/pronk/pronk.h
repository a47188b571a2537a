// Everything of pronk's C++ API.
#pragma once

#include "pronk/build_info.h"
#include "pronk/chat.h"
#include "pronk/completion.h"
#include "pronk/engine.h"
#include "pronk/error.h"
#include "pronk/generation.h"
#include "pronk/log.h"
#include "pronk/mailbox.h"
#include "pronk/memory.h"
#include "pronk/params.h"
#include "pronk/permit.h"
#include "pronk/scheduler.h"
#include "pronk/statistics.h"
#include "pronk/version.h"
