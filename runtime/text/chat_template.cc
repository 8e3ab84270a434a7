#include "runtime/text/chat_template.h"

#include "runtime/text/json_view.h"

#include <minja/minja.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {
namespace {

// Ordered, because templates print mappings and the model saw their members in the order given.
using json = nlohmann::ordered_json;
using Root = std::shared_ptr<minja::TemplateNode>;

// minja parses with std::regex, whose recursion takes stack by the character: longer runs and
// comments crash it. The largest templates in use have 20 KiB.
constexpr std::size_t kTemplateBytesMax = 48UL << 10U;
constexpr std::size_t kRunBytesMax = 4096;
constexpr JsonLimits kClientLimits{64, 1024};

constexpr std::string_view kTrialMessages =
    R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi"}])";
constexpr std::string_view kTrialTools =
    R"([{"type": "function", "function": {"name": "f", "description": "d",
    "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}}}])";

// Everything of the directory that rendering needs.
struct Sources {
  std::string name;  // for messages; empty: no template
  std::string standard;
  std::string tool_use;                  // empty: the standard one
  json special_tokens = json::object();  // bos_token ...
};

// minja's messages go on with a position and lines of the template.
std::string first_line(const std::exception& failure) {
  const std::string message = failure.what();
  return message.substr(0, message.find(" at row"));
}

// minja's position, as "row 3, column 7"; empty if it gave none.
std::string position_of(const std::exception& failure) {
  const std::string message = failure.what();
  const std::size_t at = message.find(" at row");
  return at == std::string::npos ? "" : message.substr(at, message.find_first_of(":\n", at) - at);
}

// The longest comment, word or stretch of space.
std::size_t longest_run(std::string_view source) {
  const auto kind_of = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ? 'w' : c <= ' ' ? ' ' : c;
  };
  std::size_t longest = 0;
  std::size_t begin = 0;
  for (std::size_t at = 1; at <= source.size(); ++at) {
    if (at == source.size() || kind_of(source[at]) != kind_of(source[begin])) {
      longest = std::max(longest, at - begin);
      begin = at;
    }
  }
  for (std::size_t at = source.find("{#"); at != std::string_view::npos;
       at = source.find("{#", at + 2)) {
    longest = std::max(longest, std::min(source.find("#}", at), source.size()) - at);
  }
  return longest;
}

Result<Root> parse_template(std::string_view source, const std::string& name) {
  if (source.size() > kTemplateBytesMax) {
    return error(Kind::kInvalid,
                 name + ": the chat template has " + std::to_string(source.size()) +
                     " bytes; expected at most " + std::to_string(kTemplateBytesMax));
  }
  if (const std::size_t run = longest_run(source); run > kRunBytesMax) {
    return error(Kind::kInvalid,
                 name + ": the chat template has a comment, word or space of " +
                     std::to_string(run) + " bytes; expected at most " +
                     std::to_string(kRunBytesMax));
  }
  try {
    return minja::Parser::parse(
        std::string(source),
        {.trim_blocks = true, .lstrip_blocks = true, .keep_trailing_newline = false});
  } catch (const std::exception& failure) {  // a border: minja reports by exceptions
    return error(Kind::kUnsupported,
                 name + ": the chat template cannot be parsed: " + first_line(failure) +
                     position_of(failure));
  }
}

Result<std::string> format_time(std::int64_t unix_s, const std::string& format) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  std::array<char, 256> text{};
  if (gmtime_r(&time, &parts) == nullptr) {
    return error(Kind::kInvalid, "the time " + std::to_string(unix_s) + " s has no date");
  }
  return std::string(text.data(), std::strftime(text.data(), text.size(), format.c_str(), &parts));
}

minja::Value strftime_now(std::int64_t unix_s) {
  return minja::Value::callable(
      [unix_s](const std::shared_ptr<minja::Context>&, minja::ArgumentsValue& arguments) {
        arguments.expectArgs("strftime_now", {1, 1}, {0, 0});
        return minja::Value(format_time(unix_s, arguments.args[0].get<std::string>()).value_or(""));
      });
}

Result<std::string> render_template(minja::TemplateNode& root,
                                    const json& variables,
                                    std::int64_t now_unix_s) {
  try {
    auto context = minja::Context::make(minja::Value(variables));
    if (!variables.contains("strftime_now")) {
      context->set("strftime_now", strftime_now(now_unix_s));
    }
    return root.render(context);
  } catch (const std::exception&
               failure) {  // a border: so do raise_exception() in a template and wrong types
    return error(Kind::kInvalid,
                 "the chat template refused the conversation: " + first_line(failure));
  }
}

Result<json> parse_client(std::string_view text,
                          std::string_view name,
                          const JsonLimits& limits = kClientLimits) {
  TROUPE_TRY(check_json(text, name, limits));
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// OpenAI's API carries arguments as JSON in a text, templates want the object. What is no object
// stays as it is: the template decides.
void parse_arguments(json& call) {
  if (!call.is_object()) {
    return;
  }
  json& owner = call.contains("function") && call["function"].is_object() ? call["function"] : call;
  const auto arguments = owner.find("arguments");
  if (arguments == owner.end() || !arguments->is_string()) {
    return;
  }
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.empty()) {
    *arguments = json::object();
    return;
  }
  const JsonLimits inner{kClientLimits.depth_max / 2, kClientLimits.members_max};
  if (auto parsed = parse_client(text, "arguments", inner); parsed && parsed->is_object()) {
    *arguments = std::move(*parsed);
  }
}

Result<json> parse_messages(std::string_view text) {
  TROUPE_ASSIGN(json messages, parse_client(text, "messages"));
  if (!messages.is_array() || messages.empty()) {
    return error(Kind::kInvalid, "messages is not a list of at least one message");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return error(Kind::kInvalid,
                   "messages[" + std::to_string(i) + "] is not an object with a role");
    }
    if (const auto calls = message.find("tool_calls");
        calls != message.end() && calls->is_array()) {
      for (json& call : *calls) {
        parse_arguments(call);
      }
    }
  }
  return messages;
}

Result<std::string> text_of(const JsonView& field) {
  TROUPE_ASSIGN(const auto text, field.text());
  return std::string(text);
}

// chat_template: a text, or a list of {name, template}.
Status read_field(const JsonView& field, Sources& out) {
  if (!field.is_list()) {
    TROUPE_ASSIGN(out.standard, text_of(field));
    return {};
  }
  for (std::size_t i = 0; i < field.size(); ++i) {
    const JsonView entry = field.element(i);
    TROUPE_ASSIGN(const auto name_field, entry.member("name", "text"));
    TROUPE_ASSIGN(const auto name, name_field.text());
    TROUPE_ASSIGN(const auto source, entry.member("template", "text"));
    TROUPE_ASSIGN(std::string text, text_of(source));
    if (name == "default") {
      out.standard = std::move(text);
    } else if (name == "tool_use") {
      out.tool_use = std::move(text);
    }
  }
  return out.standard.empty() ? field.complain("has no template named \"default\"") : Status{};
}

// "bos_token" and the like are variables of the template: texts, or objects with a content.
void read_special_tokens(const JsonView& config, json& out) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const auto token = config.find(name);
    const auto content = token && token->is_object() ? token->find("content") : token;
    if (content && content->is_text()) {
      out[name] = std::string(*content->text());
    }
  }
}

Result<Sources> read_sources(const std::filesystem::path& directory) {
  Sources out;
  const auto config_path = directory / "tokenizer_config.json";
  TROUPE_ASSIGN(const auto config, JsonDocument::open_if_present(config_path));
  if (config != nullptr) {
    read_special_tokens(config->root(), out.special_tokens);
  }

  const auto own_file = directory / "chat_template.jinja";
  if (std::error_code failure; std::filesystem::exists(own_file, failure)) {
    TROUPE_ASSIGN(out.standard, read_text_file(own_file));
    out.name = own_file.string();
    return out;
  }
  if (config != nullptr) {
    const JsonView root = config->root();
    if (const auto field = root.find("chat_template")) {
      TROUPE_TRY(read_field(*field, out));
      out.name = config->name();
      return out;
    }
  }
  TROUPE_ASSIGN(const auto processor,
                JsonDocument::open_if_present(directory / "chat_template.json"));
  if (processor != nullptr) {
    const JsonView root = processor->root();
    TROUPE_ASSIGN(const auto field, root.member("chat_template", "text"));
    TROUPE_TRY(read_field(field, out));
    out.name = processor->name();
  }
  return out;
}

}  // namespace

struct ChatTemplate::Parts {
  std::string directory;  // for messages
  json special_tokens = json::object();
  std::string source;
  Root standard;  // null: no template
  Root tool_use;  // null: the standard one

  static Result<std::unique_ptr<const ChatTemplate>> make(Sources sources, std::string directory);
};

ChatTemplate::ChatTemplate(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::~ChatTemplate() = default;

bool ChatTemplate::exists() const {
  return parts_->standard != nullptr;
}

const std::string& ChatTemplate::source() const {
  return parts_->source;
}

std::string ChatTemplate::special_token(const std::string& name) const {
  return parts_->special_tokens.value(name, std::string());
}

Result<std::unique_ptr<const ChatTemplate>> ChatTemplate::Parts::make(Sources sources,
                                                                      std::string directory) {
  auto parts = std::make_unique<Parts>();
  parts->directory = std::move(directory);
  parts->special_tokens = std::move(sources.special_tokens);
  if (!sources.name.empty()) {
    TROUPE_ASSIGN(parts->standard, parse_template(sources.standard, sources.name));
    parts->source = std::move(sources.standard);
    if (!sources.tool_use.empty()) {
      TROUPE_ASSIGN(parts->tool_use, parse_template(sources.tool_use, sources.name));
    }
  }
  std::unique_ptr<const ChatTemplate> out(new ChatTemplate(std::move(parts)));
  if (!out->exists()) {
    return out;
  }
  for (const std::string_view tools : {kTrialTools, std::string_view()}) {
    if (!tools.empty() && out->parts_->tool_use == nullptr) {
      continue;  // a template that is not for tools may refuse them
    }
    if (const auto text = out->render(kTrialMessages, tools); !text) {
      return error(
          Kind::kUnsupported,
          sources.name + ": " + text.error().message + "; that was a trial of two messages");
    }
  }
  return out;
}

Result<std::unique_ptr<const ChatTemplate>> ChatTemplate::open(
    const std::filesystem::path& directory) {
  TROUPE_ASSIGN(Sources sources, read_sources(directory));
  return Parts::make(std::move(sources), directory.string());
}

Result<std::unique_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source,
                                                                std::string name) {
  Sources sources;
  sources.standard = source;
  sources.name = name;
  return Parts::make(std::move(sources), std::move(name));
}

Result<std::string> ChatTemplate::render(std::string_view messages,
                                         std::string_view tools,
                                         const ChatOptions& options) const {
  if (!exists()) {
    return error(
        Kind::kUnsupported,
        parts_->directory +
            " has no chat template (chat_template.jinja, or in "
            "tokenizer_config.json or chat_template.json); give the prompt as plain text instead");
  }
  json variables = parts_->special_tokens;
  if (!options.variables.empty()) {
    TROUPE_ASSIGN(const json extra, parse_client(options.variables, "the template variables"));
    if (!extra.is_object()) {
      return error(Kind::kInvalid, "the template variables are not an object");
    }
    variables.update(extra);
  }
  TROUPE_ASSIGN(variables["messages"], parse_messages(messages));
  variables["add_generation_prompt"] = options.add_generation_prompt;
  if (!tools.empty()) {
    TROUPE_ASSIGN(json list, parse_client(tools, "tools"));
    if (!list.is_null() && !list.is_array()) {
      return error(Kind::kInvalid, "tools is not a list");
    }
    if (list.is_array()) {  // null is left out: templates ask whether there are tools
      variables["tools"] = std::move(list);
    }
  }
  const bool with_tools = variables.contains("tools") && parts_->tool_use != nullptr;
  return render_template(
      with_tools ? *parts_->tool_use : *parts_->standard, variables, options.now_unix_s);
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         const ChatOptions& options) const {
  json list = json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  // Broken UTF-8 would make the JSON library throw; as everywhere, it becomes U+FFFD.
  return render(list.dump(-1, ' ', false, json::error_handler_t::replace), {}, options);
}

}  // namespace troupe
