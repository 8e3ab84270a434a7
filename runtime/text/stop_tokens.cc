#include "runtime/text/stop_tokens.h"

#include "runtime/text/json_view.h"
#include "runtime/text/tokenizer_file.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

namespace troupe {
namespace {

using Ids = std::vector<std::uint32_t>;

// eos_token_id: an id, a list of ids, null or absent.
Status read_ids(const JsonView& owner, Ids& out) {
  const auto ids = owner.find("eos_token_id");
  if (!ids) {
    return {};
  }
  if (!ids->is_list()) {
    TROUPE_ASSIGN(const auto id, ids->integer(0, kTokenIdMax));
    out.push_back(id);
    return {};
  }
  for (std::size_t i = 0; i < ids->size(); ++i) {
    TROUPE_ASSIGN(const auto id, ids->element(i).integer(0, kTokenIdMax));
    out.push_back(id);
  }
  return {};
}

// eos_token: a text, or an object with a content.
Status read_token(const JsonView& config, const Tokenizer& tokenizer, Ids& out) {
  const auto token = config.find("eos_token");
  if (!token) {
    return {};
  }
  const auto content = token->is_object() ? token->find("content") : token;
  if (!content || !content->is_text()) {
    return token->refuse("text, or an object with the text as its content");
  }
  const auto id = tokenizer.id_of(*content->text());
  if (!id) {
    return content->refuse("a token of tokenizer.json");
  }
  out.push_back(*id);
  return {};
}

Status read_number(const JsonView& owner,
                   std::string_view name,
                   double min,
                   double max,
                   std::optional<double>& out) {
  if (const auto field = owner.find(name)) {
    TROUPE_ASSIGN(out, field->number(min, max));
  }
  return {};
}

Status read_count(const JsonView& owner,
                  std::string_view name,
                  std::uint32_t min,
                  std::optional<std::uint32_t>& out) {
  if (const auto field = owner.find(name)) {
    TROUPE_ASSIGN(out, field->integer(min, std::numeric_limits<std::int32_t>::max()));
  }
  return {};
}

Status read_defaults(const JsonView& root, GenerationDefaults& out) {
  constexpr double kPenaltyMax = 1000;
  if (const auto field = root.find("do_sample")) {
    TROUPE_ASSIGN(out.do_sample, field->boolean());
  }
  TROUPE_TRY(read_number(root, "temperature", 0, 100, out.temperature));
  TROUPE_TRY(read_count(root, "top_k", 0, out.top_k));
  TROUPE_TRY(read_number(root, "top_p", 0, 1, out.top_p));
  TROUPE_TRY(read_number(root, "min_p", 0, 1, out.min_p));
  TROUPE_TRY(read_number(
      root, "repetition_penalty", 1 / kPenaltyMax, kPenaltyMax, out.repetition_penalty));
  return read_count(root, "max_new_tokens", 1, out.max_new_tokens);
}

}  // namespace

Result<GenerationConfig> read_generation_config(const std::filesystem::path& directory,
                                                const Tokenizer* tokenizer) {
  GenerationConfig out;
  TROUPE_ASSIGN(const auto generation,
                JsonDocument::open_if_present(directory / "generation_config.json"));
  if (generation != nullptr) {
    const JsonView root = generation->root();
    TROUPE_TRY(read_ids(root, out.stop_ids));
    TROUPE_TRY(read_defaults(root, out.defaults));
  }
  TROUPE_ASSIGN(const auto settings,
                JsonDocument::open_if_present(directory / "tokenizer_config.json"));
  if (settings != nullptr && tokenizer != nullptr) {
    TROUPE_TRY(read_token(settings->root(), *tokenizer, out.stop_ids));
  }
  TROUPE_ASSIGN(const auto model, JsonDocument::open_if_present(directory / "config.json"));
  if (model != nullptr) {
    const JsonView root = model->root();
    TROUPE_TRY(read_ids(root, out.stop_ids));
    if (const auto inner = root.find("text_config")) {
      TROUPE_TRY(read_ids(*inner, out.stop_ids));
    }
  }
  std::sort(out.stop_ids.begin(), out.stop_ids.end());
  out.stop_ids.erase(std::unique(out.stop_ids.begin(), out.stop_ids.end()), out.stop_ids.end());
  return out;
}

}  // namespace troupe
