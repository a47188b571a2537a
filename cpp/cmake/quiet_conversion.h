// Included before llama.cpp's conversion of JSON schemas, which writes its warnings to stderr: they
// go to whoever asked for the conversion instead.
#pragma once

#include <cstdio>

__attribute__((format(printf, 2, 3))) int pronk_note_conversion(std::FILE* file, const char* format,
                                                                ...);

#define fprintf pronk_note_conversion
