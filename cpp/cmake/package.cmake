# What a downstream project finds with find_package(pronk CONFIG).
include(CMakePackageConfigHelpers)

set(pronk_cmake_dir lib/cmake/pronk)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/pronkConfig.cmake.in
  ${PROJECT_BINARY_DIR}/pronkConfig.cmake
  INSTALL_DESTINATION ${pronk_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pronkConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/pronkConfig.cmake
  ${PROJECT_BINARY_DIR}/pronkConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/pronkExtension.cmake
  DESTINATION ${pronk_cmake_dir})
install(EXPORT pronkTargets NAMESPACE pronk:: DESTINATION ${pronk_cmake_dir})
