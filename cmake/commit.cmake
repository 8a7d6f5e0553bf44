# Which commit this source tree is: a git checkout asks git, an archive made by `git archive` has it in commit.txt beside this
# file, and anything else does not know. cmake -DSOURCE=dir -P cmake/commit.cmake prints it.
function(cupool_commit result source)
  set(commit unknown)
  if(EXISTS ${source}/cmake/commit.txt)
    file(STRINGS ${source}/cmake/commit.txt archived LIMIT_COUNT 1)
    if(archived MATCHES "^([0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f])")
      set(commit ${CMAKE_MATCH_1})
    endif()
  endif()
  find_program(CUPOOL_GIT git)
  # A tree without .git may lie inside a checkout of something else.
  if(commit STREQUAL unknown AND CUPOOL_GIT AND EXISTS ${source}/.git)
    execute_process(COMMAND ${CUPOOL_GIT} -C ${source} rev-parse --short=12 HEAD
                    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
    if(failed EQUAL 0)
      set(commit ${head})
      # The log of HEAD grows with every commit and checkout: then the next build asks again.
      execute_process(COMMAND ${CUPOOL_GIT} -C ${source} rev-parse --git-path logs/HEAD
                      OUTPUT_VARIABLE log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      get_filename_component(log "${log}" ABSOLUTE BASE_DIR ${source})
      if(EXISTS "${log}" AND NOT CMAKE_SCRIPT_MODE_FILE)
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${log}")
      endif()
    endif()
  endif()
  set(${result} ${commit} PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  cupool_commit(commit ${SOURCE})
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo ${commit})
endif()
