#include "runtime/device/system_limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sched.h>
#include <sstream>
#include <string_view>
#include <vector>

namespace troupe {

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) {
    text << file.rdbuf();
  }
  return text.str();
}

// The leading number of a text; nothing for "max", "-1" and files that do not exist.
std::optional<std::uint64_t> number(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    return std::nullopt;
  }
  std::uint64_t value = 0;
  const char* first = text.data() + begin;
  if (std::from_chars(first, text.data() + text.size(), value).ec != std::errc{}) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  return number(read_text(path));
}

// The number after `key` at the start of a line.
std::optional<std::uint64_t> field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) {
      return number(std::string_view(line).substr(key.size()));
    }
  }
  return std::nullopt;
}

// A control group's folder and its parents up to the mount: each of them limits. Inside a container
// the path may name a place outside of what is mounted; such folders do not exist and limit
// nothing.
std::vector<std::string> lineage(const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  while (!path.empty() && path != "/") {
    folders.push_back(mount + path);
    path.resize(path.find_last_of('/'));
  }
  folders.push_back(mount);
  return folders;
}

struct Group {
  std::vector<std::string> folders;
  bool unified = false;  // version 2
};

// The groups of `controller` that this process is in: version 2's if any, and version 1's if any.
std::vector<Group> groups(const std::string& root, std::string_view controller) {
  std::vector<Group> found;
  std::istringstream lines(read_text(root + "/proc/self/cgroup"));
  const std::string mount = root + "/sys/fs/cgroup";
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (names.empty()) {
      found.push_back({lineage(mount, path), true});
      continue;
    }
    std::istringstream list(names);
    for (std::string each; std::getline(list, each, ',');) {
      if (each == controller) {
        found.push_back({lineage(mount + "/" + names, path), false});
        found.push_back({lineage(mount + "/" + each, path), false});
      }
    }
  }
  return found;
}

// What the group's limit leaves: file pages that nobody used lately count as free, since the system
// drops them first.
std::optional<std::uint64_t> memory_left(const std::string& folder, bool unified) {
  const auto limit = read_number(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto usage = read_number(folder + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !usage) {
    return std::nullopt;
  }
  const std::uint64_t droppable =
      field(read_text(folder + "/memory.stat"), unified ? "inactive_file " : "total_inactive_file ")
          .value_or(0);
  const std::uint64_t used = *usage - std::min(*usage, droppable);
  return *limit - std::min(*limit, used);
}

// Quota and period in microseconds.
std::optional<std::uint64_t> quota_processors(const std::string& folder, bool unified) {
  std::optional<std::uint64_t> quota;
  std::optional<std::uint64_t> period;
  if (unified) {
    const std::string text = read_text(folder + "/cpu.max");
    quota = number(text);
    const std::size_t space = text.find(' ');
    period =
        space == std::string::npos ? std::nullopt : number(std::string_view(text).substr(space));
  } else {
    quota = read_number(folder + "/cpu.cfs_quota_us");
    period = read_number(folder + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *period == 0) {
    return std::nullopt;
  }
  return *quota / *period;
}

std::uint32_t affinity_processors() {
  // The kernel refuses a mask smaller than its own, which grows with the machine.
  for (std::size_t bits = 1024; bits <= (std::size_t{1} << 20); bits *= 2) {
    cpu_set_t* mask = CPU_ALLOC(bits);
    if (mask == nullptr) {
      break;
    }
    const std::size_t bytes = CPU_ALLOC_SIZE(bits);
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    const int count = known ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (known) {
      return static_cast<std::uint32_t>(std::max(count, 1));
    }
  }
  return 1;
}

}  // namespace

SystemLimits read_system_limits(const std::string& root) {
  SystemLimits limits;
  limits.processors = affinity_processors();
  for (const Group& group : groups(root, "cpu")) {
    for (const std::string& folder : group.folders) {
      if (const auto whole = quota_processors(folder, group.unified)) {
        const std::uint64_t least = std::min<std::uint64_t>(limits.processors, *whole);
        limits.processors = static_cast<std::uint32_t>(std::max<std::uint64_t>(least, 1));
      }
    }
  }
  limits.available_bytes =
      field(read_text(root + "/proc/meminfo"), "MemAvailable:").value_or(0) * 1024;
  for (const Group& group : groups(root, "memory")) {
    for (const std::string& folder : group.folders) {
      if (const auto left = memory_left(folder, group.unified)) {
        limits.available_bytes = std::min(limits.available_bytes, *left);
      }
    }
  }
  return limits;
}

}  // namespace troupe
