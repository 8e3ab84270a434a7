#include "deploy/profile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string_view>

namespace troupe::deploy {
namespace {

double rate(double amount, Time time) {
  return time.count() <= 0 ? 0 : amount / in_seconds(time);
}

// "layers.3.gdn.qkv" -> "layers.*.gdn.qkv"
std::string of_any_layer(std::string_view node) {
  constexpr std::string_view kLayers = "layers.";
  const auto digits = node.starts_with(kLayers)
                          ? node.find_first_not_of("0123456789", kLayers.size())
                          : std::string_view::npos;
  return digits == std::string_view::npos
             ? std::string(node)
             : std::string(kLayers) + "*" + std::string(node.substr(digits));
}

template <class... Values>
std::string line(const char* format, Values... values) {
  std::array<char, 200> text{};
  (void)std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

}  // namespace

void Profile::add(const Stage::LaunchView& launch) {
  const std::string kernel(name(launch.kernel));
  Kind& kind = kinds_[{launch.mode, kernel + " " + of_any_layer(launch.node)}];
  ++kind.launches;
  kind.time += launch.time.ended - launch.time.began;
  kind.work.bytes += launch.work.bytes;
  kind.work.multiplications += launch.work.multiplications;
  events_.push_back({launch.kernel, std::string(launch.node), launch.time});
}

std::vector<std::pair<Profile::Key, Profile::Kind>> Profile::kinds() const {
  std::vector<std::pair<Key, Kind>> sorted(kinds_.begin(), kinds_.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.first, -a.second.time) < std::pair(b.first.first, -b.second.time);
  });
  return sorted;
}

std::string Profile::text(double bandwidth) const {
  std::string text;
  const auto sorted = kinds();
  for (const Mode mode : {Mode::kRows, Mode::kDecode}) {
    Time total{0};
    for (const auto& [key, kind] : sorted) {
      total += key.first == mode ? kind.time : Time{0};
    }
    if (total == Time{0}) {
      continue;
    }
    text += line("\n%-44s %8s %9s %6s %9s %7s %9s\n",
                 (std::string(name(mode)) + " programs").c_str(),
                 "launches",
                 "ms",
                 "share",
                 "GB/s",
                 "of mem",
                 "GFLOP/s");
    for (const auto& [key, kind] : sorted) {
      if (key.first != mode) {
        continue;
      }
      const double read = rate(static_cast<double>(kind.work.bytes), kind.time);
      text += line("%-44.44s %8llu %9.2f %5.1f%%",
                   key.second.c_str(),
                   static_cast<unsigned long long>(kind.launches),
                   1e3 * in_seconds(kind.time),
                   100 * in_seconds(kind.time) / in_seconds(total));
      if (kind.work.bytes > 0) {
        text += line(" %9.2f %6.0f%% %9.1f",
                     read / 1e9,
                     bandwidth <= 0 ? 0 : 100 * read / bandwidth,
                     rate(2 * static_cast<double>(kind.work.multiplications), kind.time) / 1e9);
      }
      text += "\n";
    }
  }
  return text;
}

std::string Profile::trace() const {
  auto list = nlohmann::ordered_json::array();
  const auto microseconds = [](Time time) { return 1e6 * in_seconds(time); };
  for (const Event& event : events_) {
    list.push_back({{"name", std::string(name(event.kernel)) + " " + event.node},
                    {"cat", name(event.kernel)},
                    {"ph", "X"},
                    {"pid", 1},
                    {"tid", 1},
                    {"ts", microseconds(event.time.began - events_.front().time.began)},
                    {"dur", microseconds(event.time.ended - event.time.began)}});
  }
  return nlohmann::ordered_json{{"traceEvents", list}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

}  // namespace troupe::deploy
