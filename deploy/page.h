// The files of the page at `/`, which the build puts into the program (cmake/embed_text.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace troupe::deploy {

struct PageFile {
  std::string_view name;  // "index.html"
  std::string_view text;
};

[[nodiscard]] const std::vector<PageFile>& page_files();

}  // namespace troupe::deploy
