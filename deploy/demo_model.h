// Where the demo model is when no MODEL is given: in the source tree that built this program, else
// in the share folder beside the installed program. Pure but for looking at the file system.
#pragma once

#include "runtime/base/error.h"

#include <filesystem>
#include <string>
#include <vector>

namespace troupe::deploy {

// The places for the demo model, most wanted first. `program` is the executable's path.
[[nodiscard]] std::vector<std::filesystem::path> demo_model_places(
    const std::filesystem::path& program);

// The first place with a config.json. kInvalid names all that were tried.
[[nodiscard]] Result<std::filesystem::path> find_model(
    const std::vector<std::filesystem::path>& places);

// `given`, checked to be a directory with a config.json; the demo model when `given` is empty.
[[nodiscard]] Result<std::filesystem::path> model_directory(const std::string& given);

}  // namespace troupe::deploy
