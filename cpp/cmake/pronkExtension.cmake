# pronk_add_extension(<name> [PACKAGE <package>] <sources and options of nanobind_add_module>...)
#
# Adds a Python extension module that takes and returns pronk's types, also when it is built with another release of
# nanobind than pronk was. PACKAGE is the Python package that it is installed into, with dots; "." is none. It decides
# where the module looks for libpronk, and defaults to any package at the top.
#
# A package elsewhere (an editable install, another prefix) finds libpronk by importing pronk first.
function(pronk_add_extension name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PACKAGE" "")
  if(NOT DEFINED arg_PACKAGE)
    set(arg_PACKAGE package)
  endif()

  # The Python that scikit-build-core or the caller chose, else one that is found.
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module
    OPTIONAL_COMPONENTS Development.SABIModule)
  if(NOT COMMAND nanobind_add_module)
    if(NOT DEFINED nanobind_ROOT)
      execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
        OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
    find_package(nanobind CONFIG QUIET)
    if(NOT nanobind_FOUND OR nanobind_VERSION VERSION_LESS 3.0)
      message(FATAL_ERROR "pronk_add_extension: got nanobind '${nanobind_VERSION}', expected 3.0 or newer, "
        "add nanobind>=3 and nanobind-backend to build-system.requires")
    endif()
  endif()

  # One backend module holds the types of all extensions. NB_DOMAIN would part them.
  nanobind_add_module(${name} BACKEND_MODULE nanobind_backend ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE pronk::pronk)

  # From the module up to the folder that holds all packages.
  set(up "")
  if(NOT arg_PACKAGE STREQUAL ".")
    string(REPLACE "." ";" levels "${arg_PACKAGE}")
    list(LENGTH levels depth)
    string(REPEAT "/.." ${depth} up)
  endif()
  if(APPLE)
    set(origin "@loader_path")
  else()
    set(origin "$ORIGIN")
  endif()
  set_property(TARGET ${name} APPEND PROPERTY INSTALL_RPATH "${origin}${up}/pronk/lib")
endfunction()
