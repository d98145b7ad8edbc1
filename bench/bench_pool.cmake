# bench_pool: our pool as installed, in the shared library, against those contenders that are there.
pkg_check_modules(DPDK QUIET libdpdk)
pkg_check_modules(UCX QUIET ucx)
find_library(SGP_JEMALLOC jemalloc)
find_path(SGP_JEMALLOC_INCLUDE jemalloc/jemalloc.h)

# Each contender's file is compiled with its package's flags.
add_library(bench_pool_dpdk OBJECT bench_pool_dpdk.c)
add_library(bench_pool_ucx OBJECT bench_pool_ucx.c bench_pool_ucx_spin.c)
add_library(bench_pool_jemalloc OBJECT bench_pool_jemalloc.c)
foreach(contender bench_pool_dpdk bench_pool_ucx bench_pool_jemalloc)
  target_link_libraries(${contender} PRIVATE sgp_flags)
endforeach()

add_library(bench_floor_list SHARED bench_floor_list.c)
target_link_libraries(bench_floor_list PRIVATE sgp_flags)
add_executable(bench_pool bench_pool.c bench_pool_inline.c bench_pool_call.c bench_pool_checked.c bench_pool_floor.c
               bench_pool_floor_call.c bench_pool_floor_empty.c bench_pool_floor_stack.c
               $<TARGET_OBJECTS:bench_harness> $<TARGET_OBJECTS:bench_pool_dpdk>
               $<TARGET_OBJECTS:bench_pool_ucx> $<TARGET_OBJECTS:bench_pool_jemalloc>)
# softverbs comes before the verbs libraries that ours brings along.
target_link_libraries(bench_pool PRIVATE sgp_flags sgpool_softverbs sgpool bench_floor_list
                      Threads::Threads)
if(DPDK_FOUND AND NOT SGP_SANITIZE)
  target_compile_definitions(bench_pool_dpdk PRIVATE BENCH_DPDK=1)
  target_compile_options(bench_pool_dpdk PRIVATE ${DPDK_CFLAGS_OTHER} -Wno-conversion -Wno-undef)
  target_include_directories(bench_pool_dpdk SYSTEM PRIVATE ${DPDK_INCLUDE_DIRS})
  target_link_directories(bench_pool PRIVATE ${DPDK_LIBRARY_DIRS})
  target_link_libraries(bench_pool PRIVATE rte_mempool rte_ring rte_eal)
endif()
if(UCX_FOUND AND NOT SGP_SANITIZE)
  target_compile_definitions(bench_pool_ucx PRIVATE BENCH_UCX=1)
  target_include_directories(bench_pool_ucx SYSTEM PRIVATE ${UCX_INCLUDE_DIRS})
  target_link_libraries(bench_pool PRIVATE ucs)
endif()
if(SGP_JEMALLOC AND SGP_JEMALLOC_INCLUDE AND NOT SGP_SANITIZE)
  target_compile_definitions(bench_pool_jemalloc PRIVATE BENCH_JEMALLOC=1)
  target_include_directories(bench_pool_jemalloc SYSTEM PRIVATE ${SGP_JEMALLOC_INCLUDE})
  target_link_libraries(bench_pool PRIVATE ${SGP_JEMALLOC})
endif()

# bench_register: on the real libraries and a real device.
add_executable(bench_register bench_register.c $<TARGET_OBJECTS:bench_harness>)
target_link_libraries(bench_register PRIVATE sgp_flags PkgConfig::IBVERBS)
