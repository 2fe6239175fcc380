# Writes the commit of SOURCE into the header OUT, where it differs: "1a2b3c4d5e6f", with "-dirty" where files differ
# from it; empty where SOURCE is no checkout.
cmake_policy(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --dirty --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#pragma once\n#define VEDETTE_COMMIT \"\${commit}\"\n")
