// Rule 7: nothing inside an executable allocates after warm-up. Every operator new of this binary
// is counted.
#include "tests/program/count_allocations.h"
#include "tests/support/model_under_test.h"

#include <gtest/gtest.h>

namespace troupe::test {
namespace {

class Allocation : public testing::TestWithParam<bool> {};

TEST_P(Allocation, NoneFromCommitToReleaseAfterWarmUp) {
  auto model = ModelUnderTest::open(data_directory() + "/q35-moe",
                                    {.activation = Activation::kBF16,
                                     .kernel_set = available_sets(Activation::kBF16).back(),
                                     .threads = GetParam() ? 1U : 2U,
                                     .run_inline = GetParam()});
  AsyncPipeline& pipeline = *model->executable().query<AsyncPipeline>();
  const std::vector<std::int32_t> tokens(40, 3);
  std::vector<PageRef> pages(40, PageRef{kNoPage, 0});
  const std::vector<SegmentInput> long_segment = {{.rows = 40}};
  const std::vector<SegmentInput> decode = {{.rows = 1, .first_position = 40, .read_page = {1, 1}}};
  const std::vector<BlockRef> block = {{0, 1}};
  const std::vector<SampledInput> last = {
      {.row = 39,
       .params = {
           .temperature = 1, .top_p = 0.9F, .key = 4, .top_logprobs = 5, .want_logprob = 1}}};
  const std::vector<SampledInput> first = {
      {.row = 0, .params = {.temperature = 0.7F, .top_k = 10, .key = 4}}};
  const auto round = [&] {
    pages.back() = {1, 1};
    const auto a = pipeline.commit_no_wait({.tokens = tokens,
                                            .write_pages = pages,
                                            .segments = long_segment,
                                            .blocks = block,
                                            .block_width = 1,
                                            .sampled = last});
    const std::vector<PageRef>& all = pages;
    const auto b = pipeline.commit_no_wait({.tokens = std::span(tokens).first(1),
                                            .write_pages = std::span(all).first(1),
                                            .segments = decode,
                                            .blocks = block,
                                            .block_width = 1,
                                            .sampled = first});
    ASSERT_TRUE(a.has_value() && b.has_value());
    ASSERT_TRUE(pipeline.sync_pending(std::chrono::seconds(60)).has_value());
    ASSERT_TRUE(pipeline.outputs(*a).has_value());
    ASSERT_TRUE(pipeline.release(*a).has_value());
    ASSERT_TRUE(pipeline.release(*b).has_value());
  };
  round();
  const std::uint64_t before = allocation_count();
  ASSERT_GT(before, 100U);  // the counter works

  for (int i = 0; i < 5; ++i) {
    round();
  }

  EXPECT_EQ(allocation_count() - before, 0U);
}

INSTANTIATE_TEST_SUITE_P(Devices,
                         Allocation,
                         testing::Values(true, false),
                         [](const auto& instance) {
                           return instance.param ? "cpu_inline" : "cpu_threads";
                         });

}  // namespace
}  // namespace troupe::test
