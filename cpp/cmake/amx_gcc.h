// Included before every source of ggml's CPU part where GCC compiles it for AMX. GCC's intrinsics
// (seen with 12.2) do not tell the optimiser which memory the tile instructions read: it drops or
// moves the stores before them, and the first quantised matrix product ends in SIGILL or is wrong.
#pragma once

#if defined(__AMX_TILE__)

#include <immintrin.h>

static inline __attribute__((always_inline)) void pronk_tile_loadconfig(const void* config) {
  __asm__ volatile("ldtilecfg\t%X0" : : "m"(*(const char (*)[64])config) : "memory");
}

#define _tile_loadconfig(config) pronk_tile_loadconfig(config)

// The number of the tile becomes part of the instruction's text, so it has to be expanded first.
#define PRONK_TILE_LOADD(tile, base, stride)                                                     \
  __asm__ volatile("{tileloadd\t(%0,%1,1), %%tmm" #tile "|tileloadd\t%%tmm" #tile ", [%0+%1*1]}" \
                   :                                                                             \
                   : "r"((const void*)(base)), "r"((long)(stride))                               \
                   : "memory")
#undef _tile_loadd
#define _tile_loadd(tile, base, stride) PRONK_TILE_LOADD(tile, base, stride)

#endif
