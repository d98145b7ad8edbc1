# The kernel's NVMe over RDMA host on examples/nvmf-target. The short test (nvmf.sh) runs with the
# others in rxe's machine; these take long.
add_dependencies(device_programs nvmf_target)

# sgp_nvmf_tests(NAME DEVICE SCRIPT... [WIRE]): the scripts in a machine of their own.
function(sgp_nvmf_tests name device)
  cmake_parse_arguments(PARSE_ARGV 2 nvmf WIRE "" "")
  set(scripts ${nvmf_UNPARSED_ARGUMENTS})
  set(wire "")
  if(nvmf_WIRE)
    set(wire --wire)
  endif()
  set(fixture device.${device}.${name})
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${device}.${name})
  list(TRANSFORM scripts PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  list(TRANSFORM paths APPEND .sh)
  add_test(NAME ${fixture}.machine
           COMMAND ${PROJECT_SOURCE_DIR}/scripts/vm ${wire} --device ${device} --timeout 2500 --
                   ${CMAKE_CURRENT_SOURCE_DIR}/run ${out} $<TARGET_FILE:sgpool_command> ${paths})
  set_tests_properties(${fixture}.machine PROPERTIES
                       ENVIRONMENT "SGP_NVMF=$<TARGET_FILE:nvmf_target>" LABELS "device;full"
                       FIXTURES_SETUP ${fixture} TIMEOUT 2600 RESOURCE_LOCK machine COST 1500)
  foreach(script ${scripts})
    add_test(NAME ${fixture}.${script} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/result ${out} ${script})
    set_tests_properties(${fixture}.${script} PROPERTIES LABELS "device;full"
                         FIXTURES_REQUIRED ${fixture})
  endforeach()
endfunction()

sgp_nvmf_tests(nvmf_long rxe nvmf_verify nvmf_kill nvmf_flat nvmf_commands)
sgp_nvmf_tests(nvmf_loss rxe nvmf_loss WIRE)
sgp_nvmf_tests(nvmf_long siw nvmf nvmf_flat)
