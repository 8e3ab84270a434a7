#include "net/openai_error.h"

#include "net/openai.h"
#include "net/openai_json.h"

#include <utility>

namespace troupe::net {

namespace {

Json text_or_null(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

tl::unexpected<ApiError> refuse(std::string param, std::string message, std::string code) {
  return tl::unexpected<ApiError>(ApiError{.status = 400,
                                           .type = "invalid_request_error",
                                           .message = std::move(message),
                                           .param = std::move(param),
                                           .code = std::move(code)});
}

ApiError api_error(const Error& error) {
  const auto with = [&](unsigned status, const char* type, const char* code) {
    return ApiError{
        .status = status, .type = type, .message = error.message, .param = {}, .code = code};
  };
  switch (error.kind) {
    case Kind::kInvalid:
      return with(400, "invalid_request_error", "invalid_value");
    case Kind::kUnsupported:
      return with(400, "invalid_request_error", "unsupported");
    case Kind::kOverloaded:
      return with(429, "rate_limit_error", "queue_full");
    case Kind::kCancelled:
    case Kind::kDisconnected:
      return with(503, "server_error", "unavailable");
    case Kind::kInternal:
      break;
  }
  return with(500, "server_error", "internal_error");
}

HttpResponse respond_with(const ApiError& error) {
  HttpResponse response =
      error_response(error.status, error.type, error.message, error.param, error.code);
  if (error.status == 429 || error.status == 503) {
    response.fields.emplace_back("retry-after", "1");
  }
  return response;
}

std::string error_body(const ApiError& error) {
  return error_response(error.status, error.type, error.message, error.param, error.code).body;
}

HttpResponse error_response(unsigned status,
                            std::string_view type,
                            std::string_view message,
                            std::string_view param,
                            std::string_view code) {
  Json body;
  body["error"] = {{"message", message},
                   {"type", type},
                   {"param", text_or_null(param)},
                   {"code", text_or_null(code)}};
  return {.status = status, .content_type = "application/json", .body = dump(body), .fields = {}};
}

}  // namespace troupe::net
