// Private to net/: the OpenAPI 3.1 document of what OpenAiApi answers. Requests are described by
// the table that checks them; the tests check real answers against the rest.
#pragma once

#include "net/openai_parameters.h"

#include <string>

namespace troupe::net {

[[nodiscard]] std::string openapi_document(const Parameters& parameters,
                                           const ModelCard& card,
                                           bool needs_key,
                                           const std::string& more_paths);

}  // namespace troupe::net
