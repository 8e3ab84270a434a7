// Private to net/: what is answered when a request can't be: OpenAI's error object and its status.
#pragma once

#include "net/http.h"
#include "runtime/base/error.h"

#include <string>
#include <string_view>

namespace troupe::net {

struct ApiError {
  unsigned status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;  // empty: null
  std::string code;   // empty: null
};

// A value or the refusal of a request.
template <class T>
class [[nodiscard]] Answer : public tl::expected<T, ApiError> {
 public:
  using tl::expected<T, ApiError>::expected;
};

// 400, naming the parameter.
[[nodiscard]] tl::unexpected<ApiError> refuse(std::string param,
                                              std::string message,
                                              std::string code = "invalid_value");

// Why the model did not take a request or did not finish it. No client's input is a server error.
[[nodiscard]] ApiError api_error(const Error& error);

// With Retry-After where that helps.
[[nodiscard]] HttpResponse respond_with(const ApiError& error);
// {"error": {...}}, for an event of a stream.
[[nodiscard]] std::string error_body(const ApiError& error);

}  // namespace troupe::net
