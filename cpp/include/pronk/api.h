// Marks what libpronk exports; everything else in it is hidden.
#pragma once

#if defined(_WIN32)
#if defined(PRONK_BUILDING)
#define PRONK_API __declspec(dllexport)
#else
#define PRONK_API __declspec(dllimport)
#endif
#else
#define PRONK_API __attribute__((visibility("default")))
#endif
