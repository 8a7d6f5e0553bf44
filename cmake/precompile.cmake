# Headers that nearly every source of a target includes are parsed once (CUPOOL_PRECOMPILE, for a build from nothing:
# scripts/test). Off, as everybody else builds, each source must include what it uses.
option(CUPOOL_PRECOMPILE "Parse what most sources of a target include once" OFF)

# cupool_precompile(TARGET HEADER...): each as it stands in #include.
function(cupool_precompile target)
  if(CUPOOL_PRECOMPILE)
    list(TRANSFORM ARGN REPLACE "^([^<].*)$" "\"\\1\"" OUTPUT_VARIABLE headers)
    list(TRANSFORM headers REPLACE "^(.+)$" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
    target_precompile_headers(${target} PRIVATE ${headers})
  endif()
endfunction()
