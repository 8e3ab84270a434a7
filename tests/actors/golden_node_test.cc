// The whole engine: a node over the real CPU stage of a tiny model, against the tokens of an
// independent implementation.
#include "actors/node.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"
#include "tests/golden/golden_file.h"
#include "tests/support/model_under_test.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

namespace troupe {
namespace {

// One waiting client for all requests.
class Answers {
 public:
  RequestSink sink() {
    return [this](const RequestEvent& event) {
      const std::lock_guard lock(mutex_);
      for (const auto& output : event.tokens) {
        tokens_[event.id].push_back(static_cast<std::int32_t>(output.token));
      }
      if (event.finished) {
        ends_[event.id] = event;
        changed_.notify_all();
      }
    };
  }
  bool wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(
        lock, std::chrono::seconds(120), [&] { return ends_.size() == count; });
  }
  std::map<RequestId, std::vector<std::int32_t>> tokens_;  // read after wait()
  std::map<RequestId, RequestEvent> ends_;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct Sizes {
  std::uint32_t pages = 0, blocks = 0, step_rows = 0, sequences = 0;
};

class GoldenNode : public ::testing::TestWithParam<Sizes> {};

// Whether prompts share steps, are cut into chunks or lose their state to others on the way: the
// same tokens.
TEST_P(GoldenNode, GeneratesTheGreedyTokensOfTheGoldenModel) {
  const std::string directory = test::data_directory() + "/next-tiny";
  const auto golden = test::GoldenFile::read(directory, "");
  SteadyClock clock;
  const auto config = read_model_config(directory).value();
  const auto checkpoint = Checkpoint::open(directory, config).value();
  auto device =
      make_cpu_device({.threads = 1, .kernel_set = "scalar", .activation = Activation::kF32}, clock)
          .value();
  auto stage = make_stage(*device,
                          config,
                          *checkpoint,
                          {.activation = Activation::kF32,
                           .max_rows = 64,
                           .max_segments = 16,
                           .max_sampled = 16,
                           .pages = GetParam().pages,
                           .blocks = GetParam().blocks})
                   .value();
  Answers answers;
  std::map<RequestId, std::vector<std::int32_t>> expected;
  const auto node =
      Node::start(std::move(device),
                  std::move(stage),
                  nullptr,
                  clock,
                  {.sequences_max = GetParam().sequences, .step_rows_max = GetParam().step_rows})
          .value();

  for (const auto& prompt : golden.prompts) {
    Request request;
    request.prompt.assign(prompt.ids.begin(), prompt.ids.end());
    request.max_tokens = static_cast<std::uint32_t>(prompt.greedy.size());
    const auto id = node->submit(request, answers.sink());
    ASSERT_TRUE(id) << id.error().message;
    expected[*id] = prompt.greedy;
  }

  ASSERT_TRUE(answers.wait(expected.size()));
  for (const auto& [id, tokens] : expected) {
    EXPECT_FALSE(answers.ends_[id].failure) << answers.ends_[id].failure->message;
    EXPECT_EQ(answers.tokens_[id], tokens) << "request " << id.value;
  }
  EXPECT_TRUE(node->stop(std::chrono::seconds(60)));
}

INSTANTIATE_TEST_SUITE_P(Sizes,
                         GoldenNode,
                         ::testing::Values(Sizes{20, 40, 64, 16},
                                           Sizes{4, 4, 8, 3},
                                           Sizes{2, 3, 5, 1}));

}  // namespace
}  // namespace troupe
