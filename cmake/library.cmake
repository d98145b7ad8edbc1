# libsgpool from its rooms, and what a user's build needs to find it.
set(SGP_MAP ${PROJECT_SOURCE_DIR}/src/sgpool.map)
add_library(sgpool SHARED $<TARGET_OBJECTS:sgp_pool> $<TARGET_OBJECTS:sgp_post>)
add_library(sgpool_static STATIC $<TARGET_OBJECTS:sgp_pool> $<TARGET_OBJECTS:sgp_post>)
add_library(sgpool::sgpool ALIAS sgpool)
add_library(sgpool::sgpool_static ALIAS sgpool_static)
foreach(lib sgpool sgpool_static)
  set_target_properties(${lib} PROPERTIES OUTPUT_NAME sgpool)
  target_include_directories(${lib} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${lib} PUBLIC PkgConfig::IBVERBS PkgConfig::RDMACM PRIVATE Threads::Threads)
  if(SGP_HAVE_NUMA)
    target_link_libraries(${lib} PRIVATE PkgConfig::NUMA)
  endif()
endforeach()
set_target_properties(sgpool PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${SGP_SOVERSION}
                      LINK_DEPENDS ${SGP_MAP})
# Not to be unloaded: a thread that ends calls into the library to give its chunks back.
target_link_libraries(sgpool PRIVATE $<BUILD_INTERFACE:sgp_lto>)
target_link_options(sgpool PRIVATE -Wl,--version-script=${SGP_MAP} -Wl,-z,nodelete)
if(NOT SGP_SANITIZE)
  target_link_options(sgpool PRIVATE -Wl,-z,defs)
endif()

install(TARGETS sgpool sgpool_static EXPORT sgpool-targets
        LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
install(DIRECTORY include/sgpool ${PROJECT_BINARY_DIR}/include/sgpool
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT sgpool-targets NAMESPACE sgpool:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sgpool)
configure_package_config_file(cmake/sgpool-config.cmake.in ${PROJECT_BINARY_DIR}/sgpool-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sgpool)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sgpool-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sgpool-config.cmake ${PROJECT_BINARY_DIR}/sgpool-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sgpool)
set(SGP_PC_PRIVATE "-pthread")
set(SGP_PC_REQUIRES_PRIVATE "")
if(SGP_HAVE_NUMA)
  set(SGP_PC_REQUIRES_PRIVATE "numa")
endif()
configure_file(cmake/sgpool.pc.in ${PROJECT_BINARY_DIR}/sgpool.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sgpool.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
