// Many threads at one exchange: the model's, and the one on which the client's leaving is noticed.
#include "tests/net/api_fixture.h"

#include <atomic>
#include <thread>

namespace troupe::net {
namespace {

constexpr std::size_t kThreads = 4;
constexpr int kPieces = 50;
constexpr int kRounds = 40;

// Takes what comes from any thread. Only one may be in it at a time (SE-3).
class StrictExchange final : public Exchange {
 public:
  explicit StrictExchange(HttpRequest request) : request_(std::move(request)) {}
  [[nodiscard]] const HttpRequest& request() const override { return request_; }
  [[nodiscard]] std::string take_body() override { return std::exchange(request_.body, {}); }
  void respond(HttpResponse) override { ++answers_; }
  bool begin_stream(HttpResponse) override { return !left_; }
  bool write(std::string piece) override {
    EXPECT_EQ(++inside_, 1);
    pieces_ += std::move(piece);
    EXPECT_EQ(--inside_, 0);
    return !left_;
  }
  void end() override { ++answers_; }
  void on_gone(std::function<void()> callback) override { gone_ = std::move(callback); }

  void leave() {
    left_ = true;
    gone_();
  }
  [[nodiscard]] int answers() const { return answers_; }
  [[nodiscard]] const std::string& pieces() const { return pieces_; }  // when all threads are done

 private:
  HttpRequest request_;
  std::function<void()> gone_;
  std::string pieces_;
  std::atomic<int> answers_ = 0;
  std::atomic<int> inside_ = 0;
  std::atomic<bool> left_ = false;
};

class Threads : public testing::TestWithParam<bool> {
 protected:
  Threads() {
    backend_.card_.max_context = 4096;
    api_ = OpenAiApi::make(backend_, clock_, 1, {.on_outcome = [this](const ApiOutcome& outcome) {
                             ++outcomes_;
                             status_ = outcome.status;
                           }});
  }

  std::shared_ptr<StrictExchange> ask() {
    backend_.submitted.clear();
    auto exchange = std::make_shared<StrictExchange>(HttpRequest{
        .method = "POST",
        .path = "/v1/completions",
        .fields = {{"content-type", "application/json"}},
        .body =
            Json{{"model", "org/model"}, {"prompt", "a"}, {"n", kThreads}, {"stream", GetParam()}}
                .dump()});
    EXPECT_TRUE(api_->handle(exchange));
    return exchange;
  }

  // Each choice is told by a thread of its own.
  void run(const std::function<void()>& meanwhile) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([this, i] {
        for (int piece = 0; piece < kPieces; ++piece) {
          backend_.say(i, std::to_string(i));
        }
        backend_.finish(i, "");
      });
    }
    meanwhile();
    for (auto& thread : threads) {
      thread.join();
    }
  }

  FakeBackend backend_;
  ManualClock clock_;
  std::atomic<int> outcomes_ = 0;
  std::atomic<unsigned> status_ = 0;
  std::unique_ptr<OpenAiApi> api_;
};

TEST_P(Threads, TellTheirChoicesWithoutMixingOrLosingAny) {
  for (int round = 1; round <= kRounds; ++round) {
    const auto exchange = ask();
    run([] {});

    ASSERT_EQ(outcomes_, round);
    ASSERT_EQ(exchange->answers(), 1);
    ASSERT_EQ(status_, 200U);
    if (GetParam()) {
      std::size_t events = 0;
      for (std::size_t at = 0; (at = exchange->pieces().find("data: {", at)) != std::string::npos;
           ++at) {
        ++events;
      }
      ASSERT_EQ(events, kThreads * (kPieces + 1));
      ASSERT_TRUE(exchange->pieces().ends_with("data: [DONE]\n\n"));
    }
  }
}

TEST_P(Threads, EndOnceWhenTheClientLeavesAmidst) {
  for (int round = 1; round <= kRounds; ++round) {
    const auto exchange = ask();
    run([&] { exchange->leave(); });

    ASSERT_EQ(outcomes_, round);
    ASSERT_LE(exchange->answers(), 1);
    ASSERT_TRUE(status_ == 200U || status_ == 499U) << status_;
  }
}

INSTANTIATE_TEST_SUITE_P(OfOneExchange, Threads, testing::Bool(), [](const auto& each) {
  return each.param ? "Streamed" : "Whole";
});

}  // namespace
}  // namespace troupe::net
