# Where the .pc files say that things are: seen from where they lie themselves, so that an installation
# with "cmake --install --prefix", and one that was moved, are found. An absolute folder stays as it is.
set(SGP_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH SGP_PC_UP "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
  string(REGEX REPLACE "/$" "" SGP_PC_UP "${SGP_PC_UP}")
  set(SGP_PC_PREFIX "\${pcfiledir}/${SGP_PC_UP}")
endif()
foreach(SGP_PC_DIR LIBDIR INCLUDEDIR)
  set(SGP_PC_${SGP_PC_DIR} "${CMAKE_INSTALL_${SGP_PC_DIR}}")
  if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_${SGP_PC_DIR}}")
    set(SGP_PC_${SGP_PC_DIR} "\${prefix}/${CMAKE_INSTALL_${SGP_PC_DIR}}")
  endif()
endforeach()
