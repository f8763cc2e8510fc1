# cmake -DSOURCE=REPOSITORY -DOUTPUT=FILE.cpp -P BuildCommit.cmake: writes the function of commands/build_commit.h, and
# touches the file only if the commit has changed. Without git, or outside of a repository, the commit is "unknown".
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=9 OUTPUT_VARIABLE commit RESULT_VARIABLE status
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT status EQUAL 0)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "commands/build_commit.h"

std::string_view megatron::build_commit() { return "@commit@"; }
]])
