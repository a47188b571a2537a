# Builds the vendored llama.cpp as static libraries with hidden symbols: a second copy of llama.cpp or
# ggml in the same process (llama-cpp-python, whisper bindings) must neither see nor replace ours.

set(PRONK_LLAMA_DIR ${PROJECT_SOURCE_DIR}/vendor/llama.cpp)
if(NOT EXISTS ${PRONK_LLAMA_DIR}/CMakeLists.txt)
  message(FATAL_ERROR "vendor/llama.cpp: got no source, expected the pinned tree, run: python tools/vendor.py")
endif()

# The pinned commit is stated once, for the vendor tool and for the build.
file(STRINGS ${PROJECT_SOURCE_DIR}/vendor/llama.cpp.pin pin_lines REGEX "^(commit|tag) ")
foreach(line IN LISTS pin_lines)
  string(REPLACE " " ";" pair "${line}")
  list(GET pair 0 key)
  list(GET pair 1 value)
  set(PRONK_LLAMA_${key} ${value})
endforeach()
string(REGEX REPLACE "^b" "" LLAMA_BUILD_NUMBER ${PRONK_LLAMA_tag})
string(SUBSTRING ${PRONK_LLAMA_commit} 0 8 LLAMA_BUILD_COMMIT)

set(BUILD_SHARED_LIBS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

set(LLAMA_BUILD_COMMON ON CACHE BOOL "" FORCE)
set(LLAMA_OPENSSL OFF CACHE BOOL "" FORCE)
set(LLAMA_SUBPROCESS OFF CACHE BOOL "" FORCE)
set(LLAMA_ALL_WARNINGS OFF CACHE BOOL "" FORCE)
set(GGML_CCACHE OFF CACHE BOOL "" FORCE) # launcher.cmake does it, with a cache that clones can share
set(GGML_CUDA_NCCL OFF CACHE BOOL "" FORCE) # one process drives its GPUs without it

# One thread pool serves every context of a process, sleeps when idle and needs no libgomp in the wheel.
option(GGML_OPENMP "ggml: use OpenMP instead of pronk's shared thread pool" OFF)
option(GGML_METAL_EMBED_LIBRARY "ggml: embed the Metal shaders" ON)

include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)
set(CMAKE_CXX_STANDARD 17)
add_subdirectory(${PRONK_LLAMA_DIR} ${PROJECT_BINARY_DIR}/llama.cpp EXCLUDE_FROM_ALL SYSTEM)
unset(CMAKE_CXX_STANDARD)
# Relative paths in the files that bundle sources, so that clones share the compiled ones too. CMake before 4.0 ignores
# it.
set_target_properties(llama PROPERTIES UNITY_BUILD_RELOCATABLE ON)

# An assertion that fails is an exception where pronk can take one: it has to get through what is written in C.
foreach(target ggml-base ggml-cpu)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:C,GNU,Clang,AppleClang>:-fexceptions>)
endforeach()

# See there. It does nothing for a CPU without AMX.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(ggml-cpu PRIVATE "SHELL:-include \"${CMAKE_CURRENT_LIST_DIR}/amx_gcc.h\"")
endif()
