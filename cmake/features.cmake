# What this system's libraries have; each answer becomes a line of the generated config.h.
include(CheckSymbolExists)
include(CheckCSourceCompiles)
pkg_check_modules(NUMA IMPORTED_TARGET numa)
set(SGP_HAVE_NUMA ${NUMA_FOUND})
include(CheckIncludeFile)
check_include_file(sys/sdt.h SGP_HAVE_SDT)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::IBVERBS)
check_c_source_compiles("#include <infiniband/verbs.h>
int main(void) { return !IBV_ACCESS_RELAXED_ORDERING; }" SGP_HAVE_RELAXED_ORDERING)
check_symbol_exists(ibv_reg_dmabuf_mr infiniband/verbs.h SGP_HAVE_DMABUF)
unset(CMAKE_REQUIRED_LIBRARIES)
check_include_file(execinfo.h SGP_HAVE_BACKTRACE)
check_include_file(valgrind/memcheck.h SGP_HAVE_MEMCHECK)
configure_file(${PROJECT_SOURCE_DIR}/cmake/config.h.in ${PROJECT_BINARY_DIR}/config/sgp_config.h)
configure_file(${PROJECT_SOURCE_DIR}/include/sgpool/version.h.in
               ${PROJECT_BINARY_DIR}/include/sgpool/version.h)
target_include_directories(sgp_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include ${PROJECT_BINARY_DIR}/config
  ${PROJECT_SOURCE_DIR}/src)
