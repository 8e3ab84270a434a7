// Promise P1 through the whole engine: a request's tokens and logprobs are the same bits alone and
// among others, with small steps and with large ones, for prompts around every edge of a chunk and
// a KV block; and the logprobs of a prompt are those that its generation reported.
#include "actors/node.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"
#include "tests/support/model_under_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

namespace troupe {
namespace {

constexpr std::uint32_t kLengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 511, 512, 513};

struct Answer {
  std::vector<TokenOutput> tokens;
  std::vector<TokenOutput> prompt;
  std::uint32_t preemptions = 0;
  bool failed = false;
};

// The size of a node. Small ones cut prompts into small chunks and preempt.
struct Size {
  const char* name = "";
  std::uint32_t pages = 0, blocks = 0, rows = 0, sampled = 0, sequences = 0;
};

class Engine {
 public:
  Engine(const std::string& model, Activation activation, const Size& size) {
    const std::string directory = test::data_directory() + "/" + model;
    const auto config = read_model_config(directory).value();
    const auto checkpoint = Checkpoint::open(directory, config).value();
    auto device = make_cpu_device({.threads = 1,
                                   .kernel_set = test::available_sets(activation).back(),
                                   .activation = activation},
                                  clock_)
                      .value();
    auto stage = make_stage(*device,
                            config,
                            *checkpoint,
                            {.activation = activation,
                             .max_rows = size.rows,
                             .max_segments = std::min(size.rows, 16U),
                             .max_sampled = size.sampled,
                             .pages = size.pages,
                             .blocks = size.blocks})
                     .value();
    node_ = Node::start(std::move(device),
                        std::move(stage),
                        nullptr,
                        clock_,
                        {.sequences_max = size.sequences, .step_rows_max = size.rows})
                .value();
  }

  // All at once; answers in the order of the requests.
  std::vector<Answer> run(const std::vector<Request>& requests) {
    std::vector<RequestId> ids;
    for (const Request& request : requests) {
      const auto id = node_->submit(request, [this](const RequestEvent& event) { tell(event); });
      EXPECT_TRUE(id) << id.error().message;
      ids.push_back(*id);
    }
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(200), [&] {
      return ended_ == requests.size();
    })) << "not all have ended";
    ended_ = 0;
    std::vector<Answer> answers;
    for (const RequestId id : ids) {
      answers.push_back(std::move(answers_[id]));
    }
    answers_.clear();
    return answers;
  }
  Answer run(const Request& request) { return run(std::vector{request}).front(); }

 private:
  void tell(const RequestEvent& event) {
    const std::lock_guard lock(mutex_);
    Answer& answer = answers_[event.id];
    answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
    answer.prompt.insert(answer.prompt.end(), event.prompt.begin(), event.prompt.end());
    if (event.finished) {
      answer.preemptions = event.stats.preemptions;
      answer.failed = event.reason == FinishReason::kError;
      ++ended_;
      changed_.notify_all();
    }
  }

  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Answer> answers_;
  std::size_t ended_ = 0;
  std::unique_ptr<Node> node_;  // last: no sink is called once it has gone
};

constexpr Size kLarge{"large", 40, 80, 512, 128, 16};

Request request_of(std::uint32_t length) {
  Rng rng(length);
  Request request;
  for (std::uint32_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<std::uint32_t>(rng.below(256)));
  }
  request.max_tokens = 6;
  request.logprobs = 5;
  if (length % 2 == 0) {
    request.sampling.temperature = 0.8F;
    request.sampling.seed = length;
  }
  return request;
}

std::vector<Request> all_requests() {
  std::vector<Request> requests;
  for (const std::uint32_t length : kLengths) {
    requests.push_back(request_of(length));
    requests.back().prompt_logprobs = length % 3;
  }
  return requests;
}

// The prompt and its answer, as a prompt.
Request replay(const Request& request, const Answer& answer) {
  Request again = request;
  for (const TokenOutput& output : answer.tokens) {
    again.prompt.push_back(output.token);
  }
  again.max_tokens = 1;
  again.prompt_logprobs = request.logprobs;
  return again;
}

std::vector<TokenOutput> last_of(const std::vector<TokenOutput>& outputs, std::size_t count) {
  return {outputs.end() - static_cast<std::ptrdiff_t>(std::min(count, outputs.size())),
          outputs.end()};
}

class BatchBits : public ::testing::TestWithParam<Size> {};

TEST_P(BatchBits, AreThoseOfEachRequestAlone) {
  const std::vector<Request> requests = all_requests();
  std::vector<Answer> alone;
  {
    Engine engine("next-tiny", Activation::kF32, kLarge);
    for (const Request& request : requests) {
      alone.push_back(engine.run(request));
    }
  }

  const std::vector<Answer> together =
      Engine("next-tiny", Activation::kF32, GetParam()).run(requests);

  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_FALSE(alone[i].failed || together[i].failed) << "length " << kLengths[i];
    EXPECT_EQ(alone[i].tokens.size(), 6U) << "length " << kLengths[i];
    EXPECT_TRUE(together[i].tokens == alone[i].tokens) << "length " << kLengths[i];
    EXPECT_EQ(together[i].prompt.size(), kLengths[i]);
    EXPECT_TRUE(together[i].prompt == alone[i].prompt) << "length " << kLengths[i];
  }
}

TEST_P(BatchBits, OfAPromptAreThoseOfItsGeneration) {
  std::vector<Request> requests = all_requests();
  std::vector<Answer> generated;
  {
    Engine engine("q35-moe", Activation::kBF16, kLarge);
    generated = engine.run(requests);
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i] = replay(requests[i], generated[i]);
  }

  const std::vector<Answer> scored = Engine("q35-moe", Activation::kBF16, GetParam()).run(requests);

  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(scored[i].prompt.size(), kLengths[i] + 6U);
    EXPECT_TRUE(last_of(scored[i].prompt, 6) == generated[i].tokens) << "length " << kLengths[i];
    EXPECT_EQ(scored[i].prompt.front().token, requests[i].prompt.front());
  }
}

TEST(BatchBitsOfATightNode, ReallyPreempts) {
  const Size tight{"tight", 14, 12, 48, 7, 6};
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 6; ++i) {
    requests.push_back(request_of(58 + i));
    requests.back().max_tokens = 140;
    requests.back().prompt_logprobs = 3;
  }

  const std::vector<Answer> crowded = Engine("next-tiny", Activation::kF32, tight).run(requests);

  Engine engine("next-tiny", Activation::kF32, kLarge);
  std::uint32_t preemptions = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    preemptions += crowded[i].preemptions;
    const Answer alone = engine.run(requests[i]);
    EXPECT_TRUE(crowded[i].tokens == alone.tokens) << i;
    EXPECT_TRUE(crowded[i].prompt == alone.prompt) << i;
  }
  EXPECT_GT(preemptions, 0U);
}

INSTANTIATE_TEST_SUITE_P(Sizes,
                         BatchBits,
                         ::testing::Values(kLarge,
                                           Size{"chunks_of_64", 40, 80, 64, 16, 11},
                                           Size{"odd_chunks", 14, 40, 37, 12, 5},
                                           Size{"one_page", 1, 12, 50, 9, 3}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace troupe
