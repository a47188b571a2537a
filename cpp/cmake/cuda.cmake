# With GGML_CUDA: where CUDA comes from. A toolkit on the machine is found as ever. NVIDIA's packages for Python (those of
# cuda-toolkit[nvcc,cudart,cublas,cccl]) need no installation besides pip's, but their libraries have names that no linker
# looks for: a view of them in the build tree looks like a toolkit.
if(NOT GGML_CUDA)
  return()
endif()

# The driver's library is there only on machines with a GPU. Linked, it would keep pronk from being imported on others;
# ggml wants it for its pool of virtual memory alone.
set(GGML_CUDA_NO_VMM ON CACHE BOOL "ggml: do without CUDA's virtual memory management")

find_package(Python 3.10 QUIET COMPONENTS Interpreter)
if(Python_Interpreter_FOUND)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
      "import nvidia, pathlib; print(next(f for p in nvidia.__path__ for f in pathlib.Path(p).glob('cu1[0-9]') if any(f.glob('lib/libcublas.so.*'))))"
    OUTPUT_VARIABLE PRONK_CUDA_PACKAGES OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT PRONK_CUDA_PACKAGES)
  return()
endif()
message(STATUS "pronk: CUDA packages in ${PRONK_CUDA_PACKAGES}")

set(view ${PROJECT_BINARY_DIR}/cuda)
file(REMOVE_RECURSE ${view})
file(MAKE_DIRECTORY ${view}/bin ${view}/lib64)
foreach(part include nvvm)
  if(EXISTS ${PRONK_CUDA_PACKAGES}/${part})
    file(CREATE_LINK ${PRONK_CUDA_PACKAGES}/${part} ${view}/${part} SYMBOLIC)
  endif()
endforeach()
# nvcc looks for the rest in bin/.., which in a link would lead back to the packages.
file(GLOB files ${PRONK_CUDA_PACKAGES}/bin/*)
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  file(CREATE_LINK ${file} ${view}/bin/${name} SYMBOLIC)
endforeach()
file(GLOB files ${PRONK_CUDA_PACKAGES}/lib/lib*)
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  file(CREATE_LINK ${file} ${view}/lib64/${name} SYMBOLIC)
  string(REGEX REPLACE "\\.so\\..*" ".so" name ${name})
  if(NOT EXISTS ${view}/lib64/${name})
    file(CREATE_LINK ${file} ${view}/lib64/${name} SYMBOLIC)
  endif()
endforeach()

if(EXISTS ${view}/bin/nvcc AND NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER ${view}/bin/nvcc)
  set(CUDAToolkit_ROOT ${view})
else()
  # The compiler is the machine's, cuBLAS may be missing there.
  list(APPEND CMAKE_LIBRARY_PATH ${view}/lib64)
  include_directories(SYSTEM ${view}/include ${view}/include/cccl)
endif()
