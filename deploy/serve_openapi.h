// What /openapi.json says about the paths that ServeRoutes answers beside the API. Pure.
#pragma once

#include <string>

namespace troupe::deploy {

// An object of OpenAPI's path items, for net::ApiOptions::more_paths. `needs_key`: clients must
// send an API key for the state.
[[nodiscard]] std::string observing_paths(bool needs_key);

}  // namespace troupe::deploy
