# Run by cpack behind the packing: libraries tell the system of themselves by a trigger, as Debian's
# policy has it (8.1.1), not by scripts that call ldconfig, as cpack has it.
foreach(package ${CPACK_PACKAGE_FILES})
  set(root ${CPACK_TEMPORARY_DIRECTORY}/triggers)
  file(REMOVE_RECURSE ${root})
  if(package MATCHES "/lib[^/]*[.]deb$")
    execute_process(COMMAND dpkg-deb -R ${package} ${root} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  if(EXISTS ${root}/DEBIAN/postinst)
    file(REMOVE ${root}/DEBIAN/postinst ${root}/DEBIAN/postrm)
    file(WRITE ${root}/DEBIAN/triggers "activate-noawait ldconfig\n")
    file(CHMOD ${root}/DEBIAN/triggers FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    execute_process(COMMAND dpkg-deb --root-owner-group -b ${root} ${package}
                    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  endif()
  file(REMOVE_RECURSE ${root})
endforeach()
