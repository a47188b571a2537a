# Compiles through ccache where it is installed. Paths below the source tree are hashed as relative
# ones, so that every clone of the project shares the cache.
option(PRONK_CCACHE "Compile through ccache when it is found" ON)
if(PRONK_CCACHE)
  find_program(PRONK_CCACHE_PROGRAM ccache)
  mark_as_advanced(PRONK_CCACHE_PROGRAM)
  if(PRONK_CCACHE_PROGRAM)
    # Not PROJECT_SOURCE_DIR: the standalone tests are a project of their own.
    get_filename_component(pronk_root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
    foreach(language C CXX CUDA)
      if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
        set(CMAKE_${language}_COMPILER_LAUNCHER
            ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${pronk_root} CCACHE_NOHASHDIR=true
            ${PRONK_CCACHE_PROGRAM})
      endif()
    endforeach()
  endif()
endif()
