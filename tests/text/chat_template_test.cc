#include "runtime/text/chat_template.h"

#include "tests/text/text_fixture.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {
namespace {

using json = nlohmann::ordered_json;
using testing::TempDirectory;

constexpr std::string_view kHello = R"([{"role": "user", "content": "Hello"}])";

std::unique_ptr<const ChatTemplate> parse(std::string_view source) {
  return ChatTemplate::parse(source, "test.jinja").value();
}

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
    EXPECT_EQ(testing::qwen3()->encode(*text).value(),
              entry.at("ids").get<std::vector<std::uint32_t>>())
        << entry.at("name");
  }
}

TEST(ChatTemplate, RendersMessagesGivenAsStrings) {
  const auto chat =
      ChatTemplate::open(std::filesystem::path(TROUPE_SOURCE_DIR) / "models/demo").value();
  const std::array<ChatMessage, 1> messages{{{"user", "Sort \"2, 1\"."}}};

  EXPECT_EQ(chat->render(messages).value(),
            "<|im_start|>user\nSort \"2, 1\".<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat->render(messages, {.add_generation_prompt = false}).value(),
            "<|im_start|>user\nSort \"2, 1\".<|im_end|>\n");
}

TEST(ChatTemplate, ReplacesBrokenBytesInMessages) {
  const std::array<ChatMessage, 1> messages{{{"user", "a\xFF"}}};

  EXPECT_EQ(parse("{{ messages[0].content }}")->render(messages).value(), "a\uFFFD");
}

TEST(ChatTemplate, PrefersItsOwnFile) {
  const TempDirectory folder;
  folder.write("chat_template.jinja", "own");
  folder.write("tokenizer_config.json", R"({"chat_template": "config"})");
  folder.write("chat_template.json", R"({"chat_template": "processor"})");

  EXPECT_EQ(ChatTemplate::open(folder.path()).value()->render(kHello).value(), "own");
}

TEST(ChatTemplate, PrefersTheTokenizerConfigToTheProcessor) {
  const TempDirectory folder;
  folder.write("tokenizer_config.json", R"({"chat_template": "config"})");
  folder.write("chat_template.json", R"({"chat_template": "processor"})");

  EXPECT_EQ(ChatTemplate::open(folder.path()).value()->render(kHello).value(), "config");
}

TEST(ChatTemplate, TakesTheProcessorsLast) {
  const TempDirectory folder;
  folder.write("chat_template.json", R"({"chat_template": "processor"})");

  EXPECT_EQ(ChatTemplate::open(folder.path()).value()->render(kHello).value(), "processor");
}

TEST(ChatTemplate, ChoosesTheNamedTemplateByWhetherThereAreTools) {
  const TempDirectory folder;
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "with {{ tools|length }}"},
                                     {"name": "default", "template": "without"}]})");
  const auto chat = ChatTemplate::open(folder.path()).value();

  EXPECT_EQ(chat->render(kHello).value(), "without");
  EXPECT_EQ(chat->render(kHello, "null").value(), "without");
  EXPECT_EQ(chat->render(kHello, R"([{"type": "function"}])").value(), "with 1");
}

TEST(ChatTemplate, NamesAListWithoutADefault) {
  const TempDirectory folder;
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");

  EXPECT_EQ(ChatTemplate::open(folder.path()).error().message,
            (folder.path() / "tokenizer_config.json").string() +
                ": chat_template has no template named \"default\"");
}

TEST(ChatTemplate, IsMissedOnlyWhenUsed) {
  const TempDirectory folder;
  const auto chat = ChatTemplate::open(folder.path()).value();

  EXPECT_FALSE(chat->exists());
  const auto text = chat->render(kHello);
  EXPECT_EQ(text.error().kind, Kind::kUnsupported);
  EXPECT_EQ(text.error().message,
            folder.path().string() +
                " has no chat template (chat_template.jinja, or in tokenizer_config.json or "
                "chat_template.json); give the prompt as plain text instead");
}

TEST(ChatTemplate, KnowsTheSpecialTokensOfTheConfig) {
  const TempDirectory folder;
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": null,
                                            "chat_template": "{{ bos_token }}{{ eos_token }}{{ unk_token }}"})");

  EXPECT_EQ(ChatTemplate::open(folder.path()).value()->render(kHello).value(), "<s></s>");
}

TEST(ChatTemplate, PassesVariablesOn) {
  const auto chat = parse("{{ enable_thinking }} {{ effort }}");

  EXPECT_EQ(
      chat->render(kHello, {}, {.variables = R"({"enable_thinking": false, "effort": "low"})"})
          .value(),
      "False low");
}

TEST(ChatTemplate, LetsNoVariableReplaceTheMessages) {
  const auto chat = parse("{{ messages[0].content }}{{ add_generation_prompt }}");

  EXPECT_EQ(
      chat->render(kHello, {}, {.variables = R"({"messages": [], "add_generation_prompt": false})"})
          .value(),
      "HelloTrue");
}

TEST(ChatTemplate, KeepsTheOrderOfMembers) {
  EXPECT_EQ(parse("{{ tools | tojson }}")
                ->render(kHello, R"([{"z": 1, "a": {"y": 2, "b": "<&'>"}}])")
                .value(),
            R"([{"z": 1, "a": {"y": 2, "b": "<&'>"}}])");
}

TEST(ChatTemplate, ParsesArgumentsThatAreText) {
  const auto chat = parse(
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments "
      "| items %}"
      "{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}");
  const std::string messages =
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"b\":1,\"a\":\"x\"}"}},
                                               {"function": {"name": "g", "arguments": ""}}]}])";

  EXPECT_EQ(chat->render(messages).value(), "b=1;a=x;");
}

TEST(ChatTemplate, LeavesArgumentsThatAreNoObjectToTheTemplate) {
  const auto chat = parse(
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.arguments }}{% endfor %}{% "
      "endfor %}");

  EXPECT_EQ(
      chat->render(R"([{"role": "assistant", "tool_calls": [{"arguments": "{broken"}]}])").value(),
      "{broken");
}

TEST(ChatTemplate, ShowsTheTimeItIsGiven) {
  const auto chat = parse("{{ strftime_now('%Y-%m-%d %H:%M') }}");

  EXPECT_EQ(chat->render(kHello, {}, {.now_unix_s = 1'700'000'000}).value(), "2023-11-14 22:13");
}

TEST(ChatTemplate, PassesOnWhatTheTemplateObjectsTo) {
  const auto chat = parse(
      "{% if messages | length == 1 %}{{ raise_exception('One message is not enough.') }}{% endif "
      "%}");

  const auto text = chat->render(kHello);

  EXPECT_EQ(text.error().kind, Kind::kInvalid);
  EXPECT_EQ(text.error().message,
            "the chat template refused the conversation: One message is not enough.");
}

TEST(ChatTemplate, IsRefusedAtLoadIfItDoesNotParse) {
  const auto chat = ChatTemplate::parse("{% for m in messages %}\n{{ m.role }}", "x.jinja");

  EXPECT_EQ(chat.error().kind, Kind::kUnsupported);
  EXPECT_EQ(chat.error().message,
            "x.jinja: the chat template cannot be parsed: Unterminated for at row 1, column 1");
}

TEST(ChatTemplate, IsRefusedAtLoadIfItNeedsAFilterThatIsMissing) {
  const auto chat = ChatTemplate::parse("{{ messages | groupby('role') }}", "x.jinja");

  EXPECT_EQ(chat.error().kind, Kind::kUnsupported);
  EXPECT_EQ(chat.error().message,
            "x.jinja: the chat template refused the conversation: Value is not callable: null; "
            "that was a trial of two "
            "messages");
}

TEST(ChatTemplate, IsRefusedAtLoadIfTheEngineCouldOverflowTheStack) {
  EXPECT_EQ(
      ChatTemplate::parse("{# " + std::string(40'000, 'z') + " #}", "x.jinja").error().message,
      "x.jinja: the chat template has a comment, word or space of 40004 bytes; expected at most "
      "4096");
  EXPECT_EQ(ChatTemplate::parse("a" + std::string(5'000, ' ') + "b", "x.jinja").error().message,
            "x.jinja: the chat template has a comment, word or space of 5000 bytes; expected at "
            "most 4096");
  EXPECT_EQ(ChatTemplate::parse(std::string(50'000, '.'), "x.jinja").error().message,
            "x.jinja: the chat template has 50000 bytes; expected at most 49152");
}

TEST(ChatTemplate, IsRefusedAtLoadIfItsToolTemplateCannotBeRendered) {
  const TempDirectory folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "{{ tools | groupby('type') }}"},
                                     {"name": "default", "template": "x"}]})");

  EXPECT_EQ(ChatTemplate::open(folder.path()).error().kind, Kind::kUnsupported);
}

TEST(ChatTemplate, RefusesMessagesThatAreNone) {
  const auto chat = parse("x");

  EXPECT_EQ(chat->render("[").error().message, "messages is not valid JSON at byte 2");
  EXPECT_EQ(chat->render("{}").error().message, "messages is not a list of at least one message");
  EXPECT_EQ(chat->render("[]").error().message, "messages is not a list of at least one message");
  EXPECT_EQ(chat->render(R"([{"role": "user"}, {"role": 1}])").error().message,
            "messages[1] is not an object with a role");
}

TEST(ChatTemplate, RefusesToolsAndVariablesOfTheWrongKind) {
  const auto chat = parse("x");

  EXPECT_EQ(chat->render(kHello, "{}").error().message, "tools is not a list");
  EXPECT_EQ(chat->render(kHello, {}, {.variables = "[]"}).error().message,
            "the template variables are not an object");
}

// 30,000 levels would overflow the stack of the engine.
TEST(ChatTemplate, RefusesDeepToolsBeforeRendering) {
  const std::string deep = std::string(30'000, '[') + std::string(30'000, ']');

  EXPECT_EQ(parse("{{ tools }}")->render(kHello, deep).error().message,
            "tools is nested more than 64 levels deep; use fewer");
}

TEST(ChatTemplate, RefusesObjectsWithTooManyMembers) {
  std::string tool = "[{";
  for (int i = 0; i < 2000; ++i) {
    tool += "\"" + std::to_string(i) + "\":1,";
  }
  tool += "\"last\":1}]";

  EXPECT_EQ(parse("{{ tools }}")->render(kHello, tool).error().message,
            "tools has an object of more than 1024 members; use fewer");
}

TEST(ChatTemplate, TakesAMegabyteOfContent) {
  const std::string content(1'000'000, 'x');
  const std::array<ChatMessage, 1> messages{{{"user", content}}};

  EXPECT_TRUE(parse("{{ messages[0].content | trim }}")->render(messages).value() == content);
}

}  // namespace
}  // namespace troupe
