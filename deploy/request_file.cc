#include "deploy/request_file.h"

#include "kernels/ops.h"
#include "runtime/text/json_view.h"

#include <charconv>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace troupe::deploy {
namespace {

constexpr std::size_t kQuestionsMax = 1'000'000;
constexpr std::uint32_t kTokensMax = 1U << 22U;
constexpr std::uint32_t kAny = 0xffffffffU;
constexpr double kSeedMax = 9007199254740992.0;  // what a JSON number holds exactly
constexpr double kTiny = 1e-30;

Status read_number(const JsonView& line,
                   std::string_view name,
                   double min,
                   double max,
                   std::optional<double>& out) {
  if (const auto field = line.find(name)) {
    TROUPE_ASSIGN(out, field->number(min, max));
  }
  return {};
}

Status read_count(const JsonView& line,
                  std::string_view name,
                  std::uint32_t min,
                  std::uint32_t max,
                  std::optional<std::uint32_t>& out) {
  if (const auto field = line.find(name)) {
    TROUPE_ASSIGN(out, field->integer(min, max));
  }
  return {};
}

Status read_seed(const JsonView& line, SamplingOptions& out) {
  const auto field = line.find("seed");
  if (!field) {
    return {};
  }
  TROUPE_ASSIGN(const double seed, field->number(0, kSeedMax));
  if (seed != static_cast<double>(static_cast<std::uint64_t>(seed))) {
    return field->refuse("a whole number");
  }
  out.seed = static_cast<std::uint64_t>(seed);
  return {};
}

Status read_bias(const JsonView& line, SamplingOptions& out) {
  const auto field = line.find("logit_bias");
  if (!field) {
    return {};
  }
  if (!field->is_object()) {
    return field->refuse("an object of token ids and numbers");
  }
  out.logit_bias.clear();
  return field->for_each([&out](std::string_view name, const JsonView& value) -> Status {
    std::uint32_t id = 0;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (code != std::errc() || end != name.data() + name.size()) {
      return value.refuse("a member named by a token id");
    }
    TROUPE_ASSIGN(const double bias, value.number(-100, 100));
    out.logit_bias.emplace_back(id, bias);
    return {};
  });
}

Status read_sampling(const JsonView& line, SamplingOptions& out) {
  TROUPE_TRY(read_number(line, "temperature", 0, 100, out.temperature));
  TROUPE_TRY(read_count(line, "top_k", 0, kTokensMax, out.top_k));
  TROUPE_TRY(read_number(line, "top_p", kTiny, 1, out.top_p));
  TROUPE_TRY(read_number(line, "min_p", 0, 1, out.min_p));
  TROUPE_TRY(read_number(line, "repetition_penalty", kTiny, 100, out.repetition_penalty));
  TROUPE_TRY(read_number(line, "presence_penalty", -2, 2, out.presence_penalty));
  TROUPE_TRY(read_number(line, "frequency_penalty", -2, 2, out.frequency_penalty));
  TROUPE_TRY(read_bias(line, out));
  return read_seed(line, out);
}

Status read_stop(const JsonView& line, std::vector<std::string>& out) {
  const auto field = line.find("stop");
  if (!field) {
    return {};
  }
  out.clear();
  const std::size_t count = field->is_list() ? field->size() : 1;
  for (std::size_t i = 0; i < count; ++i) {
    const JsonView item = field->is_list() ? field->element(i) : *field;
    TROUPE_ASSIGN(const auto text, item.text());
    if (text.empty()) {
      return item.refuse("a text that is not empty");
    }
    out.emplace_back(text);
  }
  return {};
}

Status read_answer(const JsonView& line, AnswerOptions& out) {
  TROUPE_TRY(read_count(line, "max_tokens", 1, kTokensMax, out.max_tokens));
  TROUPE_TRY(read_count(line, "logprobs", 0, kTopLogprobs, out.logprobs));
  if (const auto field = line.find("ignore_eos")) {
    TROUPE_ASSIGN(out.ignore_eos, field->boolean());
  }
  TROUPE_TRY(read_stop(line, out.stop));
  return read_sampling(line, out.sampling);
}

Status read_messages(const JsonView& list, std::vector<ChatMessage>& out) {
  if (!list.is_list() || list.size() == 0) {
    return list.refuse("a list of messages");
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonView message = list.element(i);
    TROUPE_ASSIGN(const auto role, message.member("role", "text"));
    TROUPE_ASSIGN(const auto content, message.member("content", "text"));
    TROUPE_ASSIGN(const auto role_text, role.text());
    TROUPE_ASSIGN(const auto content_text, content.text());
    out.push_back({std::string(role_text), std::string(content_text)});
  }
  return {};
}

Status read_token_ids(const JsonView& list, std::vector<std::uint32_t>& out) {
  if (!list.is_list() || list.size() == 0) {
    return list.refuse("a list of token ids");
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    TROUPE_ASSIGN(const auto id, list.element(i).integer(0, kAny));
    out.push_back(id);
  }
  return {};
}

Result<Question> read_question(const JsonView& line, const AnswerOptions& usual) {
  Question question;
  question.answer = usual;
  const auto messages = line.find("messages");
  const auto prompt = line.find("prompt");
  const auto token_ids = line.find("token_ids");
  if (int{messages.has_value()} + int{prompt.has_value()} + int{token_ids.has_value()} != 1) {
    return line.complain("needs exactly one of messages, prompt and token_ids");
  }
  if (messages) {
    TROUPE_TRY(read_messages(*messages, question.messages));
  } else if (token_ids) {
    TROUPE_TRY(read_token_ids(*token_ids, question.token_ids));
  } else {
    TROUPE_ASSIGN(const auto text, prompt->text());
    question.prompt = text;
  }
  TROUPE_TRY(read_answer(line, question.answer));
  return question;
}

}  // namespace

Result<std::vector<Question>> parse_questions(std::string_view text,
                                              const std::string& file,
                                              const AnswerOptions& usual) {
  std::vector<Question> questions;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    if (questions.size() == kQuestionsMax) {
      return error(
          Kind::kOverloaded,
          file + " has more than " + std::to_string(kQuestionsMax) + " requests: split it");
    }
    TROUPE_ASSIGN(const auto document,
                  JsonDocument::parse(line, file + " line " + std::to_string(number)));
    const JsonView root = document->root();
    TROUPE_ASSIGN(auto question, read_question(root, usual));
    questions.push_back(std::move(question));
  }
  if (questions.empty()) {
    return error(Kind::kInvalid, file + " has no requests; expected a JSON object a line");
  }
  return questions;
}

Result<std::vector<Question>> read_questions(const std::filesystem::path& path,
                                             const AnswerOptions& usual) {
  TROUPE_ASSIGN(const auto text, read_text_file(path));
  return parse_questions(text, path.string(), usual);
}

}  // namespace troupe::deploy
