// Random damage to good files, from fixed seeds: opening ends with a value or an error that names
// the file, never otherwise. Worth running under sanitizers.
#include "runtime/base/sources.h"
#include "runtime/model/checkpoint.h"
#include "tests/model/fixture.h"

#include <gtest/gtest.h>

#include <string>

namespace troupe {
namespace {

// A few bytes changed among the first `reach`, and every third time the end cut off.
std::string damaged(std::string bytes, Rng& rng, std::size_t reach) {
  constexpr std::string_view kLikely = "{}[]\",:0123456789-.eE \\ntf";
  for (std::uint64_t change = 0; change <= rng.below(4); ++change) {
    const bool likely = rng.below(2) == 0;
    bytes[rng.below(reach)] =
        likely ? kLikely[rng.below(kLikely.size())] : static_cast<char>(rng.below(256));
  }
  if (rng.below(3) == 0) {
    bytes.resize(rng.below(bytes.size()));
  }
  return bytes;
}

TEST(Damage, LeavesOpeningAFileDefined) {
  const fixture::TempDirectory directory;
  const ModelConfig config = fixture::config_of(fixture::next_config());
  const std::string good = fixture::file_of(fixture::next_weights());
  const std::size_t header = 8 + fixture::header_of(fixture::next_weights()).dump().size();
  Rng rng(20);
  int refused = 0;

  for (int round = 0; round < 600; ++round) {
    directory.write("model.safetensors", damaged(good, rng, header));
    const auto opened = Checkpoint::open(directory.path(), config);
    if (!opened) {
      ++refused;
      const std::string& message = opened.error().message;
      EXPECT_TRUE(message.starts_with("model.safetensors: ") ||
                  message.starts_with(directory.path().string() + ": "))
          << message;
    }
  }

  EXPECT_GT(refused, 500);
}

TEST(Damage, LeavesReadingAConfigDefined) {
  const std::string good = fixture::moe_config().dump();
  Rng rng(21);
  int refused = 0;

  for (int round = 0; round < 4000; ++round) {
    const auto config = parse_model_config(damaged(good, rng, good.size()), "config.json");
    if (!config) {
      ++refused;
      EXPECT_TRUE(config.error().message.starts_with("config.json: ")) << config.error().message;
    }
  }

  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace troupe
