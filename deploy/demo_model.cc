#include "deploy/demo_model.h"

#include <system_error>

namespace troupe::deploy {
namespace fs = std::filesystem;

std::vector<fs::path> demo_model_places(const fs::path& program) {
  return {fs::path(TROUPE_DEMO_MODEL), program.parent_path() / "../share/troupe/models/demo"};
}

Result<fs::path> find_model(const std::vector<fs::path>& places) {
  std::string tried;
  for (const auto& place : places) {
    std::error_code ignored;
    if (fs::is_regular_file(place / "config.json", ignored)) {
      return place;
    }
    tried += (tried.empty() ? "" : ", ") + place.lexically_normal().string();
  }
  return error(Kind::kInvalid,
               "the demo model is not installed (looked in " + tried +
                   "); name a model directory, or install models/demo there");
}

Result<fs::path> model_directory(const std::string& given) {
  std::error_code code;
  if (given.empty()) {
    return find_model(demo_model_places(fs::read_symlink("/proc/self/exe", code)));
  }
  if (!fs::is_directory(given, code)) {
    return error(
        Kind::kInvalid,
        "no directory " + given + "; MODEL is a Hugging Face directory with a config.json");
  }
  if (!fs::is_regular_file(fs::path(given) / "config.json", code)) {
    return error(Kind::kInvalid, given + " has no config.json; MODEL is a Hugging Face directory");
  }
  return fs::path(given);
}

}  // namespace troupe::deploy
