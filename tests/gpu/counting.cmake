# The library that the driver loads into a program to count work through CUPTI. Headers alone are needed: CUPTI itself is
# found when the program runs.
find_path(CUPOOL_CUPTI_INCLUDE cupti.h HINTS ${cupool_test_cuda_include} ${cupool_test_cuda_include}/../extras/CUPTI/include
          NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
if(CUPOOL_CUPTI_INCLUDE AND NOT CUPOOL_SANITIZE)
  add_library(cupti_count MODULE cupti_count.cpp)
  target_link_libraries(cupti_count PRIVATE cupool_flags cupool_cuda_headers ${CMAKE_DL_LIBS})
  target_include_directories(cupti_count SYSTEM PRIVATE ${CUPOOL_CUPTI_INCLUDE})
  set_target_properties(cupti_count PROPERTIES CXX_VISIBILITY_PRESET hidden)
  target_link_options(cupti_count PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL)
endif()
