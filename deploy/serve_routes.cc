#include "deploy/serve_routes.h"

#include "deploy/page.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::deploy {
namespace {

using net::HttpFields;
using net::HttpResponse;

constexpr std::string_view kStatePath = "/v1/troupe/state";
constexpr std::uint32_t kProfileSecondsMax = 3600;
constexpr std::uint32_t kProfileSecondsDefault = 60;

// The page runs nothing but its own files, and nobody may frame it.
const HttpFields& page_fields() {
  static const HttpFields kFields = {
      {"content-security-policy",
       "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
       "form-action 'none'"},
      {"x-content-type-options", "nosniff"},
      {"cache-control", "no-cache"}};
  return kFields;
}

std::string_view page_type(std::string_view name) {
  if (name.ends_with(".css")) {
    return "text/css; charset=utf-8";
  }
  if (name.ends_with(".svg")) {
    return "image/svg+xml";
  }
  return name.ends_with(".js") ? "text/javascript; charset=utf-8" : "text/html; charset=utf-8";
}

const PageFile* page_file(std::string_view path) {
  const std::string_view name = path == "/" ? "index.html" : path.substr(1);
  for (const auto& file : page_files()) {
    if (file.name == name) {
      return &file;
    }
  }
  return nullptr;
}

HttpResponse json(unsigned status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  response.fields = {{"cache-control", "no-store"}};
  return response;
}

HttpResponse not_found(const net::HttpRequest& request) {
  return net::error_response(
      404, "invalid_request_error", "there is no " + request.path + " here", {}, "not_found");
}

// The page's own paths and those for machines that watch; all of them are for GET and HEAD.
std::optional<HttpResponse> observe(std::string_view path, const ServeMonitor& monitor) {
  const auto health = [&monitor](ServeMonitor::Question question) {
    auto answer = monitor.health(question);
    return json(answer.good ? 200 : 503, std::move(answer.json));
  };
  if (path == "/health" || path == "/health/ready") {
    return health(ServeMonitor::Question::kReady);
  }
  if (path == "/health/live") {
    return health(ServeMonitor::Question::kLive);
  }
  if (path == "/health/progress") {
    return json(200, monitor.progress_json());
  }
  if (path == "/metrics") {
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = monitor.metrics();
    return response;
  }
  if (path == kStatePath) {
    return json(200, monitor.state_json());
  }
  if (const PageFile* file = page_file(path)) {
    HttpResponse response;
    response.content_type = page_type(file->name);
    response.body = file->text;
    response.fields = page_fields();
    return response;
  }
  return std::nullopt;
}

HttpResponse wrong_method(const net::HttpRequest& request, std::string allowed) {
  auto response = net::error_response(
      405,
      "invalid_request_error",
      request.method + " is not for " + request.path + ", which takes " + allowed,
      {},
      "method_not_allowed");
  response.fields.emplace_back("allow", std::move(allowed));
  return response;
}

bool reads(const net::HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

// The value of "seconds=N", the only parameter there is.
std::optional<std::uint32_t> profile_seconds(std::string_view query) {
  constexpr std::string_view kName = "seconds=";
  if (query.empty()) {
    return kProfileSecondsDefault;
  }
  std::uint32_t seconds = 0;
  if (!query.starts_with(kName)) {
    return std::nullopt;
  }
  query.remove_prefix(kName.size());
  const auto [end, code] = std::from_chars(query.data(), query.data() + query.size(), seconds);
  const bool whole = code == std::errc() && end == query.data() + query.size();
  return whole && seconds > 0 && seconds <= kProfileSecondsMax ? std::optional(seconds)
                                                               : std::nullopt;
}

}  // namespace

ServeRoutes::ServeRoutes(net::OpenAiApi& api, ServeMonitor& monitor, std::function<void()> drain)
    : api_(api), monitor_(monitor), drain_(std::move(drain)) {}

void ServeRoutes::answer(const std::shared_ptr<net::Exchange>& exchange) {
  const auto& request = exchange->request();
  const bool locked = request.path == kStatePath && !api_.admits(request);
  if (auto response = locked ? std::nullopt : observe(request.path, monitor_)) {
    exchange->respond(reads(request) ? *std::move(response) : wrong_method(request, "GET, HEAD"));
    return;
  }
  if (!api_.handle(exchange)) {
    exchange->respond(not_found(request));
  }
}

void ServeRoutes::answer_admin(const std::shared_ptr<net::Exchange>& exchange) {
  const auto& request = exchange->request();
  if (request.path == "/admin/drain") {
    if (request.method != "POST") {
      exchange->respond(wrong_method(request, "POST"));
      return;
    }
    drain_();
    exchange->respond(json(202, R"({"status":"draining"})"));
    return;
  }
  const bool profile = request.path == "/admin/profile";
  if (!profile && request.path != "/admin/flight-recorder") {
    auto response = observe(request.path, monitor_);
    exchange->respond(response && reads(request) ? *std::move(response) : not_found(request));
    return;
  }
  if (!reads(request)) {
    exchange->respond(wrong_method(request, "GET, HEAD"));
    return;
  }
  if (!profile) {
    HttpResponse response;
    response.content_type = "application/x-ndjson";
    response.body = monitor_.flight_record();
    exchange->respond(std::move(response));
    return;
  }
  const auto seconds = profile_seconds(request.query);
  exchange->respond(seconds ? json(200, monitor_.profile_json(std::chrono::seconds(*seconds)))
                            : net::error_response(400,
                                                  "invalid_request_error",
                                                  "?" + request.query + ": expected seconds=1.." +
                                                      std::to_string(kProfileSecondsMax),
                                                  "seconds",
                                                  "invalid_value"));
}

}  // namespace troupe::deploy
