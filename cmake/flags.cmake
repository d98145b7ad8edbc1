# How every target of the project is compiled: link sgp_flags privately. (Two members of a structure put
# together in a vector register for one store cost more than two stores.)
add_library(sgp_flags INTERFACE)
target_compile_features(sgp_flags INTERFACE c_std_11)
target_compile_definitions(sgp_flags INTERFACE _GNU_SOURCE $<$<CONFIG:Debug>:SGP_DEBUG=1>)
target_compile_options(sgp_flags INTERFACE
  -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings
  -Wformat=2 -Wundef -Wvla -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
  -fvisibility=hidden -fno-strict-overflow -fno-tree-slp-vectorize
  $<$<BOOL:${SGP_WERROR}>:-Werror>)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(SGP_SANITIZE)
  add_compile_options(-fsanitize=${SGP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SGP_SANITIZE})
endif()

# The library's rooms are optimised across their files where they are optimised at all. The objects
# are whole without it too, so that a static library serves every linker.
option(SGP_LTO "Link-time optimisation of optimised builds" ON)
add_library(sgp_lto INTERFACE)
if(SGP_LTO AND CMAKE_C_COMPILER_ID STREQUAL "GNU" AND NOT SGP_SANITIZE)
  set(optimised $<NOT:$<CONFIG:Debug>>)
  target_compile_options(sgp_lto INTERFACE $<${optimised}:-flto=auto> $<${optimised}:-ffat-lto-objects>)
  target_link_options(sgp_lto INTERFACE $<${optimised}:-flto=auto> $<${optimised}:-O2>)
endif()
