#include "deploy/serve_openapi.h"

#include <nlohmann/json.hpp>

#include <initializer_list>
#include <utility>

namespace troupe::deploy {
namespace {

using Json = nlohmann::ordered_json;

Json of_type(const char* type) {
  return {{"type", type}};
}

Json count() {
  return {{"type", "integer"}, {"minimum", 0}};
}

Json seconds() {
  return {{"type", "number"}, {"minimum", 0}};
}

// Has all of these members and no others.
Json closed(std::initializer_list<std::pair<const char*, Json>> members) {
  Json json = {{"type", "object"},
               {"properties", Json::object()},
               {"required", Json::array()},
               {"additionalProperties", false}};
  for (const auto& [name, schema] : members) {
    json["properties"][name] = schema;
    json["required"].push_back(name);
  }
  return json;
}

Json progress() {
  return {
      {"type", "array"},
      {"items",
       closed({{"actor", of_type("string")}, {"busy", of_type("boolean")}, {"age_s", seconds()}})}};
}

Json health() {
  Json json = closed({{"status", {{"enum", {"ok", "draining", "stalled", "lost"}}}}});
  json["properties"].update({{"why", of_type("string")},
                             {"actor", of_type("string")},
                             {"age_s", seconds()},
                             {"limit_s", seconds()}});
  return json;
}

Json state() {
  const auto pool = closed({{"used", count()}, {"total", count()}});
  return closed({{"model", of_type("string")},
                 {"version", of_type("string")},
                 {"uptime_s", seconds()},
                 {"draining", of_type("boolean")},
                 {"device",
                  closed({{"name", of_type("string")},
                          {"kernel_set", of_type("string")},
                          {"threads", count()},
                          {"memory_bytes", count()}})},
                 {"pages", pool},
                 {"blocks", pool},
                 {"queue",
                  closed({{"waiting", count()},
                          {"running", count()},
                          {"queue_max", count()},
                          {"sequences_max", count()}})},
                 {"steps",
                  closed({{"count", count()},
                          {"last_rows", count()},
                          {"decode_rows", count()},
                          {"prompt_rows", count()},
                          {"last_ms", seconds()}})},
                 {"tokens", closed({{"prompt", count()}, {"generated", count()}})},
                 {"preemptions", count()},
                 {"progress", progress()}});
}

Json error() {
  const Json text_or_null = {{"type", {"string", "null"}}};
  return closed({{"error",
                  closed({{"message", of_type("string")},
                          {"type", of_type("string")},
                          {"param", text_or_null},
                          {"code", text_or_null}})}});
}

Json answer(const char* description, const char* type, Json schema) {
  Json json = {{"description", description}};
  json["content"][type]["schema"] = std::move(schema);
  return json;
}

// The path item of a GET.
Json get(const char* id, const char* summary, Json good) {
  Json json = {{"operationId", id}, {"summary", summary}};
  json["responses"]["200"] = std::move(good);
  json["responses"]["default"] = answer("Any other error.", "application/json", error());
  return {{"get", std::move(json)}};
}

Json get_health(const char* id, const char* summary) {
  Json json = get(id, summary, answer("Yes.", "application/json", health()));
  json["get"]["responses"]["503"] = answer("No, and why.", "application/json", health());
  return json;
}

}  // namespace

std::string observing_paths(bool needs_key) {
  Json paths;
  paths["/health"] = get_health("getHealth", "Whether to send requests here");
  paths["/health/ready"] = get_health("getReady", "The same");
  paths["/health/live"] =
      get_health("getLive", "Whether the process may go on; if not, restart it");
  paths["/health/progress"] =
      get("getProgress",
          "For each actor: whether it has work, and how long ago it got further with it",
          answer("The answer.",
                 "application/json",
                 closed({{"progress", progress()}, {"steps", count()}})));
  paths["/metrics"] =
      get("getMetrics", "Prometheus", answer("Its text format.", "text/plain", of_type("string")));
  Json watched =
      get("getState", "What the page at / shows", answer("Now.", "application/json", state()));
  if (needs_key) {
    watched["get"]["responses"]["401"] =
        answer("The API key is missing or wrong.", "application/json", error());
    watched["get"]["security"] = Json::array({{{"key", Json::array()}}});
  }
  paths["/v1/troupe/state"] = std::move(watched);
  return paths.dump();
}

}  // namespace troupe::deploy
