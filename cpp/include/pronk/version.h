// The one place that states pronk's version: read by CMake, pyproject.toml and C++ users.
#pragma once

#define PRONK_VERSION_MAJOR 0
#define PRONK_VERSION_MINOR 1
#define PRONK_VERSION_PATCH 0
#define PRONK_VERSION "0.1.0"
