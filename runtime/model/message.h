// message(parts...): the parts of an error message put together; texts as they are, integers in
// decimal. Pure, any thread.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace troupe {

inline void append_part(std::string& out, std::string_view part) {
  out += part;
}

template <std::integral Int>
void append_part(std::string& out, Int part) {
  out += std::to_string(part);
}

template <class... Parts>
[[nodiscard]] std::string message(const Parts&... parts) {
  std::string out;
  (append_part(out, parts), ...);
  return out;
}

}  // namespace troupe
