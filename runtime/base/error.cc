#include "runtime/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace troupe {

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::kInvalid:
      return "invalid";
    case Kind::kUnsupported:
      return "unsupported";
    case Kind::kOverloaded:
      return "overloaded";
    case Kind::kCancelled:
      return "cancelled";
    case Kind::kDisconnected:
      return "disconnected";
    case Kind::kInternal:
      return "internal";
  }
  return "unknown";
}

tl::unexpected<Error> error(Kind kind, std::string message, std::source_location where) {
  return tl::unexpected<Error>(Error{kind, std::move(message), where});
}

void check_failed(const char* condition, std::string_view detail, std::source_location where) {
  std::fprintf(stderr,
               "troupe: bug at %s:%u: check `%s` failed%s%.*s\n",
               where.file_name(),
               static_cast<unsigned>(where.line()),
               condition,
               detail.empty() ? "" : ": ",
               static_cast<int>(detail.size()),
               detail.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace troupe
