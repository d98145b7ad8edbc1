# Run by cpack between the installation of the components and the packing: what Debian's policy wants.
# Static libraries lose what only this compiler's link-time optimisation reads, as debhelper does it.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH is heeded
foreach(component ${CPACK_COMPONENTS_ALL})
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component}${CPACK_PACKAGING_INSTALL_PREFIX})
  set(doc ${root}/share/doc/${CPACK_SGP_PACKAGE_${component}})
  file(MAKE_DIRECTORY ${doc})
  configure_file(${CPACK_SGP_SOURCE}/packaging/changelog.in ${doc}/changelog.Debian @ONLY)
  file(COPY_FILE ${CPACK_SGP_SOURCE}/packaging/copyright ${doc}/copyright)
  file(COPY_FILE ${CPACK_SGP_SOURCE}/CHANGELOG.md ${doc}/changelog)
  file(GLOB_RECURSE pages ${root}/share/man/*.[1-9])
  file(GLOB archives ${root}/lib/*/*.a ${root}/lib/*.a)
  execute_process(COMMAND gzip -9nf ${pages} ${doc}/changelog ${doc}/changelog.Debian
                  COMMAND_ERROR_IS_FATAL ANY)
  foreach(archive ${archives})
    execute_process(COMMAND strip --strip-debug --enable-deterministic-archives -R .comment -R .note
                            -R ".gnu.lto_*" -R ".gnu.debuglto_*" -N __gnu_lto_slim -N __gnu_lto_v1 ${archive}
                    COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  file(CHMOD_RECURSE ${root}/share FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
       DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                             WORLD_EXECUTE)
endforeach()
