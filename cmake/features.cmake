# What this system's libraries have; each answer becomes a line of the generated config.h.
include(CheckSymbolExists)
include(CheckCSourceCompiles)
include(CheckIncludeFile)
set(SGP_NUMA AUTO CACHE STRING "Place memory on NUMA nodes (needs libnuma): AUTO, ON or OFF")
set_property(CACHE SGP_NUMA PROPERTY STRINGS AUTO ON OFF)
option(SGP_VERBS_OPTIONAL "Use what only some systems' libibverbs has, where this one's has it" ON)
set(SGP_HAVE_NUMA 0)
if(SGP_NUMA)
  pkg_check_modules(NUMA IMPORTED_TARGET numa)
  if(NUMA_FOUND)
    set(SGP_HAVE_NUMA 1)
  elseif(NOT SGP_NUMA STREQUAL AUTO)
    message(FATAL_ERROR "SGP_NUMA: libnuma (libnuma-dev) is needed")
  endif()
endif()
check_include_file(sys/sdt.h SGP_HAVE_SDT)
check_include_file(execinfo.h SGP_HAVE_BACKTRACE)
check_include_file(valgrind/memcheck.h SGP_HAVE_MEMCHECK)

# sgp_check_verbs(FEATURE EXPRESSION): can this be said with this system's verbs? (FreeBSD's libibverbs
# lacks some of it.) The answer is not kept where SGP_VERBS_OPTIONAL says no, so that it can change.
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::IBVERBS)
function(sgp_check_verbs feature expression)
  if(SGP_VERBS_OPTIONAL)
    check_c_source_compiles("#include <infiniband/verbs.h>
int main(void) { return !(${expression}); }" ${feature})
  else()
    unset(${feature} CACHE)
  endif()
endfunction()
sgp_check_verbs(SGP_HAVE_RELAXED_ORDERING "IBV_ACCESS_RELAXED_ORDERING")
sgp_check_verbs(SGP_HAVE_DMABUF "ibv_reg_dmabuf_mr(0, 0, 0, 0, 0, 0)")
sgp_check_verbs(SGP_HAVE_FORK_STATUS "ibv_is_fork_initialized() == IBV_FORK_UNNEEDED")
sgp_check_verbs(SGP_HAVE_CQ_EX "ibv_create_cq_ex(0, 0) && IBV_WC_EX_WITH_COMPLETION_TIMESTAMP")
sgp_check_verbs(SGP_HAVE_WINDOWS "ibv_alloc_mw(0, IBV_MW_TYPE_2) && IBV_WR_BIND_MW && ibv_inc_rkey(0)")
unset(CMAKE_REQUIRED_LIBRARIES)
configure_file(${PROJECT_SOURCE_DIR}/cmake/config.h.in ${PROJECT_BINARY_DIR}/config/sgp_config.h)
configure_file(${PROJECT_SOURCE_DIR}/include/sgpool/version.h.in
               ${PROJECT_BINARY_DIR}/include/sgpool/version.h)
target_include_directories(sgp_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include ${PROJECT_BINARY_DIR}/config
  ${PROJECT_SOURCE_DIR}/src)
