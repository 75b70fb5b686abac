# For build systems of firmware that have settings of their own.

# Adds the library for a Rust target, with error messages if `messages` is true.
function(torchlet_embed target messages)
  # Set in the cache, or the defaults would take precedence; with FORCE, because the configuration
  # may have changed.
  set(TORCHLET_TARGET ${target} CACHE STRING "" FORCE)
  set(TORCHLET_PROFILE firmware CACHE STRING "" FORCE)
  set(TORCHLET_FEATURES "" CACHE STRING "" FORCE)
  if(messages)
    set(TORCHLET_FEATURES messages CACHE STRING "" FORCE)
  endif()
  set(TORCHLET_EXAMPLES OFF CACHE BOOL "" FORCE)
  add_subdirectory(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.. torchlet)
endfunction()
