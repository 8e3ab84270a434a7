# Minja, a header-only Jinja engine: target Minja::minja. Debian packages it (libminja-dev) in newer suites than the one we
# build on, so deploy/install/debian_suite_header.sh unpacks it into .deps/minja, which is searched first.
find_path(Minja_INCLUDE_DIR minja/minja.hpp HINTS "${PROJECT_SOURCE_DIR}/.deps/minja/usr/include")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Minja
  REQUIRED_VARS Minja_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run deploy/install/debian_suite_header.sh libminja-dev .deps/minja in ${PROJECT_SOURCE_DIR}")
mark_as_advanced(Minja_INCLUDE_DIR)

if(Minja_FOUND AND NOT TARGET Minja::minja)
  add_library(Minja::minja INTERFACE IMPORTED)
  set_target_properties(Minja::minja PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${Minja_INCLUDE_DIR}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${Minja_INCLUDE_DIR}")
endif()
