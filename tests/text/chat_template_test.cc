#include "runtime/text/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <array>
#include <string>
#include <vector>

#include "tests/text/text_fixture.h"

namespace troupe {
namespace {

using json = nlohmann::ordered_json;
using testing::TemporaryFolder;

TEST(ChatTemplate, RendersEveryGoldenConversationLikeTheReference) {
  const json golden = json::parse(testing::read_file(testing::data_path("chat_golden.json")));
  const auto chat = ChatTemplate::open(testing::data_path("qwen3")).value();
  ASSERT_EQ(golden.at("cases").size(), 44U);

  for (const json& entry : golden.at("cases")) {
    const ChatOptions options{.add_generation_prompt = entry.at("add_generation_prompt"),
                              .variables = entry.at("variables").dump()};
    const auto text = chat->render(entry.at("messages").dump(), entry.at("tools").dump(), options);
    ASSERT_TRUE(text) << entry.at("name") << ": " << text.error().message;
    EXPECT_EQ(*text, entry.at("text").get<std::string>()) << entry.at("name");
    EXPECT_EQ(testing::qwen3()->encode(*text).value(), entry.at("ids").get<std::vector<std::uint32_t>>())
        << entry.at("name");
  }
}

}  // namespace
}  // namespace troupe
