# The packages that cpack makes: .deb files, one for each component that is installed. What Debian wants
# in a package and other systems don't (changelog, copyright, compressed pages) debian.cmake puts there.
set(SGP_MAINTAINER "the sgpool developers <maintainers@sgpool.example>" CACHE STRING
    "Who answers for packages that are made of this build: NAME <ADDRESS>")
set(revision 1)
set(full ${PROJECT_VERSION}-${revision})
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sgpool)
set(CPACK_PACKAGE_VENDOR "the sgpool developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_PACKAGE_CONTACT ${SGP_MAINTAINER})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_VERBATIM_VARIABLES TRUE)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian-triggers.cmake)
set(CPACK_SGP_SOURCE ${PROJECT_SOURCE_DIR})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${revision})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_DEBUGINFO_PACKAGE ON)
# A component's package may need a library that is in another's.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/src/softverbs
    ${PROJECT_BINARY_DIR}/src/heap)
set(CPACK_COMPONENTS_ALL "")

# sgp_package(COMPONENT NAME SECTION DEPENDS SUMMARY TEXT)
macro(sgp_package component name section depends summary text)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}")
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${text}")
  set(CPACK_SGP_PACKAGE_${component} ${name})
endmacro()

set(about "sgpool moves a program's data over RDMA without registering memory on the
way: a pool, registered once, hands out chunks, and each stays registered,
owned and untouched until its completion has been reaped.\n")
sgp_package(runtime libsgpool${SGP_SOVERSION} libs ""
  "registered buffers for RDMA, owned until their completion" "${about}
This package has the library that programs load.")
sgp_package(softverbs libsgpool-softverbs${SGP_SOVERSION} libs ""
  "RDMA device in software, in place of libibverbs and librdmacm"
  "softverbs runs any verbs program without an adapter, a kernel module or
privileges. It moves real bytes between processes, keeps the rules of verbs
strictly, and fails where a test tells it to.")
set(needs "libsgpool${SGP_SOVERSION} (= ${full}), libsgpool-softverbs${SGP_SOVERSION} (= ${full})")
if(SGP_HAVE_HEAP)
  sgp_package(heap libsgpool-heap${SGP_SOVERSION} libs "libsgpool${SGP_SOVERSION} (= ${full})"
    "registered memory of any size for RDMA, as from malloc" "${about}
This package has the library with sgp_malloc() and its like.")
  string(APPEND needs ", libsgpool-heap${SGP_SOVERSION} (= ${full})")
endif()
if(SGP_CLI)
  sgp_package(tools sgpool net "libsgpool-softverbs${SGP_SOVERSION} (= ${full})"
    "moves data over RDMA, and tells what a machine offers for it"
    "The command sgpool: doctor says what a machine offers for RDMA and what
stands in the way, recv and send move files, perf measures what a network and
ways to use it can do, softverbs runs any verbs program on an RDMA device in
software.")
endif()
string(APPEND needs ", libibverbs-dev, librdmacm-dev")
if(SGP_HAVE_NUMA)
  string(APPEND needs ", libnuma-dev")
endif()
sgp_package(dev libsgpool-dev libdevel "${needs}"
  "registered buffers for RDMA (development files)" "${about}
This package has the headers, the static library, the manual pages, and what
pkg-config and CMake need.")
set(CPACK_DEBIAN_DEV_DEBUGINFO_PACKAGE OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
include(CPack)
