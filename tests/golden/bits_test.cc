// The same bits from every build: Debug, Release and sanitised builds, with any of the fp32 sets,
// must reproduce one recorded digest of logits. UPDATE_GOLDEN=1 is not offered: a change here is a
// change of promise P1 and is made by hand.
#include "runtime/base/sha256.h"
#include "tests/support/model_under_test.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

namespace troupe::test {
namespace {

std::map<std::string, std::string> recorded() {
  std::ifstream file(data_directory() + "/logit_digests.txt");
  std::map<std::string, std::string> digests;
  std::string key;
  std::string digest;
  while (file >> key >> digest) {
    digests[key] = digest;
  }
  return digests;
}

std::string digest_of(const std::string& directory, Activation activation, const std::string& set) {
  auto model = ModelUnderTest::open(data_directory() + "/" + directory,
                                    {.activation = activation, .kernel_set = set});
  Sequence sequence;
  Sha256 hash;
  std::vector<std::int32_t> next = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8};
  for (int i = 0; i < 12; ++i) {
    const StepResult result =
        model->step({.sequence = &sequence, .tokens = next, .sample_all = true});
    for (const auto& row : result.logits) {
      hash.update(std::as_bytes(std::span(row)));
    }
    next = {result.results.back().token};
  }
  return hash.hex();
}

class RecordedBits : public testing::TestWithParam<std::string> {};

TEST_P(RecordedBits, AreReproducedByThisBuild) {
  const std::string set = GetParam();
  if (!find_cpu_kernel_set(set)->available()) {
    GTEST_SKIP() << "this processor lacks what kernel set " << set << " needs";
  }
  const auto digests = recorded();
  for (const std::string directory : {"next-tiny", "q35-moe", "q35-moe-fp8", "q35-dense"}) {
    for (const Activation activation : {Activation::kF32, Activation::kBF16}) {
      const std::string key = directory + (activation == Activation::kF32 ? "/fp32" : "/bf16");
      ASSERT_TRUE(digests.contains(key)) << key << " " << digest_of(directory, activation, set);
      EXPECT_EQ(digest_of(directory, activation, set), digests.at(key)) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets,
                         RecordedBits,
                         testing::Values("scalar", "avx2", "avx512"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace troupe::test
