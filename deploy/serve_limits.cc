#include "deploy/serve_limits.h"

#include "net/http.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <sys/resource.h>
#include <system_error>

namespace troupe::deploy {
namespace {

// What is opened after the limit was set: listeners and event queues, the admin listener's
// connections, files that a library opens for a moment.
constexpr std::uint64_t kReserve = 96;
constexpr std::uint64_t kOpenAtMost = 64;  // taken to be open when the system does not say
// A small limit leaves one of four files to connections that are refused.
constexpr std::uint64_t kRefusedShare = 4;

std::uint64_t open_files() {
  std::error_code unknown;
  std::filesystem::directory_iterator each("/proc/self/fd", unknown);
  std::uint64_t count = 0;
  for (; !unknown && each != std::filesystem::directory_iterator(); each.increment(unknown)) {
    ++count;
  }
  return unknown ? kOpenAtMost : count;
}

// The soft limit once it was raised, as far as it could be.
std::uint64_t raise_limit(std::uint64_t needed) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= needed) {
    return needed;
  }
  rlimit raised = limit;
  raised.rlim_cur = std::min<rlim_t>(needed, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

}  // namespace

Result<ConnectionShare> share_files(std::uint64_t files, std::uint32_t wanted) {
  const std::uint64_t refused =
      std::min<std::uint64_t>(net::HttpLimits{}.refused, files / kRefusedShare);
  if (refused == 0) {
    return error(Kind::kInvalid,
                 std::to_string(files) + " open files are left for connections, at least " +
                     std::to_string(kRefusedShare) +
                     " are needed: raise the limit of open files (ulimit -Hn)");
  }
  return ConnectionShare{
      static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, files - refused)),
      static_cast<std::uint32_t>(refused)};
}

Result<ConnectionShare> make_room_for(std::uint32_t wanted) {
  const std::uint64_t used = open_files() + kReserve;
  const std::uint64_t needed = used + wanted + net::HttpLimits{}.refused;
  const std::uint64_t limit = raise_limit(needed);
  TROUPE_ASSIGN(const auto share, share_files(limit > used ? limit - used : 0, wanted));
  if (share.connections < wanted) {
    spdlog::warn(
        "{} connections need {} open files, and the limit is {} (ulimit -Hn): {} connections are "
        "accepted; raise the limit, or lower --connections",
        wanted,
        needed,
        limit,
        share.connections);
  }
  return share;
}

}  // namespace troupe::deploy
