#include "runtime/text/tokenizer_file.h"

#include "runtime/text/json_view.h"
#include "runtime/text/unicode.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <unordered_map>
#include <utility>

namespace troupe {
namespace {

using Ids = std::unordered_map<std::string_view, std::uint32_t>;  // keys point into the document

constexpr auto kOther = Kind::kUnsupported;

Status expect_false(const JsonView& owner, std::string_view name) {
  if (const auto value = owner.find(name)) {
    TROUPE_ASSIGN(const bool set, value->boolean());
    if (set) {
      return value->refuse("false", kOther);
    }
  }
  return {};
}

Status expect_empty(const JsonView& owner, std::string_view name) {
  const auto value = owner.find(name);
  if (value && !(value->is_text() && value->text()->empty())) {
    return value->refuse("null", kOther);
  }
  return {};
}

Status expect_type(const JsonView& component,
                   std::string_view expected,
                   std::string_view sentence) {
  TROUPE_ASSIGN(const auto type, component.member("type", "text"));
  TROUPE_ASSIGN(const auto name, type.text());
  if (name != expected) {
    return type.refuse(sentence, kOther);
  }
  return {};
}

Result<bool> read_normalizer(const JsonView& root) {
  const auto normalizer = root.find("normalizer");
  if (!normalizer) {
    return false;
  }
  TROUPE_TRY(expect_type(*normalizer, "NFC", "\"NFC\" or no normalizer"));
  return true;
}

Result<std::string> read_split(const JsonView& split) {
  TROUPE_TRY(expect_type(split, "Split", "\"Split\" with a Regex, then \"ByteLevel\""));
  TROUPE_TRY(expect_false(split, "invert"));
  TROUPE_ASSIGN(const auto behavior, split.member("behavior", "\"Isolated\""));
  TROUPE_ASSIGN(const auto behavior_name, behavior.text());
  if (behavior_name != "Isolated" && behavior_name != "isolated") {
    return behavior.refuse("\"Isolated\"", kOther);
  }
  TROUPE_ASSIGN(const auto pattern, split.member("pattern", "an object with a Regex"));
  TROUPE_ASSIGN(const auto regex, pattern.member("Regex", "text"));
  TROUPE_ASSIGN(const auto text, regex.text());
  return std::string(text);
}

// Sequence [Split by a regex, ByteLevel without one]: the form of the whole Qwen family.
Result<std::string> read_pre_tokenizer(const JsonView& root) {
  TROUPE_ASSIGN(const auto pre, root.member("pre_tokenizer", "a Sequence of Split and ByteLevel"));
  TROUPE_TRY(expect_type(pre, "Sequence", "\"Sequence\" of Split and ByteLevel"));
  TROUPE_ASSIGN(const auto steps, pre.member("pretokenizers", "a list of 2"));
  if (!steps.is_list() || steps.size() != 2) {
    return steps.refuse("a list of 2: Split, ByteLevel", kOther);
  }
  const JsonView split = steps.element(0);
  const JsonView bytes = steps.element(1);
  TROUPE_ASSIGN(std::string pattern, read_split(split));
  TROUPE_TRY(expect_type(bytes, "ByteLevel", "\"ByteLevel\" after \"Split\""));
  TROUPE_TRY(expect_false(bytes, "add_prefix_space"));
  TROUPE_ASSIGN(const auto use_regex, bytes.member("use_regex", "false"));
  TROUPE_ASSIGN(const bool regex, use_regex.boolean());
  if (regex) {
    return use_regex.refuse("false", kOther);
  }
  return pattern;
}

Status check_decoder(const JsonView& root) {
  TROUPE_ASSIGN(const auto decoder, root.member("decoder", "a ByteLevel decoder"));
  TROUPE_TRY(expect_type(decoder, "ByteLevel", "\"ByteLevel\""));
  if (const auto post = root.find("post_processor")) {
    TROUPE_TRY(expect_type(
        *post, "ByteLevel", "\"ByteLevel\" or none: no tokens are added around a text"));
  }
  return {};
}

Result<Ids> read_vocab(const JsonView& model, TokenizerFile& out) {
  TROUPE_ASSIGN(const auto vocab, model.member("vocab", "an object"));
  Ids ids;
  ids.reserve(vocab.size());
  const auto read_entry = [&ids, &out](std::string_view text, const JsonView& value) -> Status {
    TROUPE_ASSIGN(const auto id, value.integer(0, kTokenIdMax));
    if (text.empty()) {
      return value.complain("is the id of an empty token");
    }
    if (id >= out.tokens.size()) {
      out.tokens.resize(id + 1UL);
    }
    if (!out.tokens[id].empty()) {
      return value.complain("is " + std::to_string(id) +
                            ", and so is another token's; ids must differ");
    }
    // What is no spelling of bytes cannot come out of BPE, but it decodes to itself.
    out.tokens[id] = bytes_of_alphabet(text).value_or(std::string(text));
    ids.emplace(text, id);
    return {};
  };
  TROUPE_TRY(vocab.for_each(read_entry));
  return ids;
}

Status read_bytes(const JsonView& model, const Ids& ids, TokenizerFile& out) {
  TROUPE_ASSIGN(const auto vocab, model.member("vocab", "an object"));
  for (std::size_t byte = 0; byte < out.byte_ids.size(); ++byte) {
    const std::string text = alphabet_of_byte(static_cast<std::uint8_t>(byte));
    const auto found = ids.find(text);
    if (found == ids.end()) {
      return vocab.complain("has no token " + excerpt(text) + " for byte " + std::to_string(byte) +
                            "; expected all 256 bytes");
    }
    out.byte_ids[byte] = found->second;
  }
  return {};
}

// "a b" or ["a", "b"].
Result<std::pair<std::string_view, std::string_view>> read_pair(const JsonView& merge) {
  constexpr std::string_view kExpected = "two tokens: \"a b\" or [\"a\", \"b\"]";
  if (merge.is_list() && merge.size() == 2) {
    const JsonView left = merge.element(0);
    const JsonView right = merge.element(1);
    TROUPE_ASSIGN(const auto a, left.text());
    TROUPE_ASSIGN(const auto b, right.text());
    return std::pair(a, b);
  }
  if (merge.is_text()) {
    const std::string_view both = *merge.text();
    const std::size_t space = both.find(' ');
    if (space != std::string_view::npos && both.find(' ', space + 1) == std::string_view::npos) {
      return std::pair(both.substr(0, space), both.substr(space + 1));
    }
  }
  return merge.refuse(kExpected);
}

Status read_merges(const JsonView& model, const Ids& ids, TokenizerFile& out) {
  TROUPE_ASSIGN(const auto merges, model.member("merges", "a list"));
  if (!merges.is_list()) {
    return merges.refuse("a list");
  }
  out.merges.reserve(merges.size());
  std::string joined;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const JsonView merge = merges.element(i);
    TROUPE_ASSIGN(const auto pair, read_pair(merge));
    joined.assign(pair.first).append(pair.second);
    const std::array<std::string_view, 3> texts{pair.first, pair.second, joined};
    std::array<std::uint32_t, 3> found{};
    for (std::size_t k = 0; k < texts.size(); ++k) {
      const auto entry = ids.find(texts[k]);
      if (entry == ids.end()) {
        return merge.complain("joins " + excerpt(pair.first) + " and " + excerpt(pair.second) +
                              ", but " + excerpt(texts[k]) + " is not in model.vocab");
      }
      found[k] = entry->second;
    }
    out.merges.push_back({found[0], found[1], found[2]});
  }
  return {};
}

Result<Ids> read_model(const JsonView& root, TokenizerFile& out) {
  TROUPE_ASSIGN(const auto model, root.member("model", "an object"));
  TROUPE_TRY(expect_type(model, "BPE", "\"BPE\""));
  TROUPE_TRY(expect_false(model, "byte_fallback"));
  TROUPE_TRY(expect_false(model, "ignore_merges"));
  TROUPE_TRY(expect_empty(model, "unk_token"));
  TROUPE_TRY(expect_empty(model, "continuing_subword_prefix"));
  TROUPE_TRY(expect_empty(model, "end_of_word_suffix"));
  if (const auto dropout = model.find("dropout")) {
    TROUPE_ASSIGN(const double share, dropout->number(0, 1));
    if (share != 0) {
      return dropout->refuse("null", kOther);
    }
  }
  TROUPE_ASSIGN(Ids ids, read_vocab(model, out));
  TROUPE_TRY(read_bytes(model, ids, out));
  TROUPE_TRY(read_merges(model, ids, out));
  return ids;
}

// The properties both files give an added token; the id is elsewhere in each.
Result<AddedToken> read_added_token(const JsonView& entry, std::uint32_t id) {
  TROUPE_ASSIGN(const auto content, entry.member("content", "text"));
  TROUPE_ASSIGN(const auto text, content.text());
  if (text.empty() || text.size() > kAddedTokenBytesMax) {
    return content.refuse("1 to " + std::to_string(kAddedTokenBytesMax) + " bytes");
  }
  TROUPE_TRY(expect_false(entry, "single_word"));
  TROUPE_TRY(expect_false(entry, "lstrip"));
  TROUPE_TRY(expect_false(entry, "rstrip"));
  // Tokens are found in raw text. For ASCII that is also right if the file wants them found in
  // normalised text.
  if (const auto normalized = entry.find("normalized")) {
    TROUPE_ASSIGN(const bool set, normalized->boolean());
    if (set && compose_nfc(text) != text) {
      return normalized->refuse("false", kOther);
    }
  }
  AddedToken token{id, std::string(text), false};
  if (const auto special = entry.find("special")) {
    TROUPE_ASSIGN(token.special, special->boolean());
  }
  return token;
}

// The union of the added tokens of both files, joined with the vocabulary.
class AddedTokenUnion final {
 public:
  AddedTokenUnion(const Ids& vocab, TokenizerFile& out) : vocab_(vocab), out_(out) {}

  Status add(const JsonView& entry, AddedToken token) {
    if (const auto known = id_of(token.content)) {
      if (*known != token.id) {
        return entry.complain("gives id " + std::to_string(token.id) + " to " +
                              excerpt(token.content) + ", which has id " + std::to_string(*known));
      }
    } else if (token.id < out_.tokens.size() && !out_.tokens[token.id].empty()) {
      return entry.complain("gives id " + std::to_string(token.id) + " to " +
                            excerpt(token.content) + ", but that is the id of " +
                            excerpt(out_.tokens[token.id]));
    }
    if (!ids_.emplace(token.content, token.id).second) {
      return {};  // both files name it
    }
    if (token.id >= out_.tokens.size()) {
      out_.tokens.resize(token.id + 1UL);
    }
    out_.tokens[token.id] = token.content;
    out_.added.push_back(std::move(token));
    return {};
  }

 private:
  [[nodiscard]] std::optional<std::uint32_t> id_of(const std::string& content) const {
    if (const auto added = ids_.find(content); added != ids_.end()) {
      return added->second;
    }
    const auto known = vocab_.find(content);
    return known == vocab_.end() ? std::nullopt : std::optional(known->second);
  }

  const Ids& vocab_;
  TokenizerFile& out_;
  std::unordered_map<std::string, std::uint32_t> ids_;
};

Status read_added_tokens(const JsonView& root, AddedTokenUnion& tokens) {
  const auto list = root.find("added_tokens");
  if (!list) {
    return {};
  }
  if (!list->is_list()) {
    return list->refuse("a list");
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const JsonView entry = list->element(i);
    TROUPE_ASSIGN(const auto id_field, entry.member("id", "an integer"));
    TROUPE_ASSIGN(const auto id, id_field.integer(0, kTokenIdMax));
    TROUPE_ASSIGN(AddedToken token, read_added_token(entry, id));
    TROUPE_TRY(tokens.add(entry, std::move(token)));
  }
  return {};
}

Status read_added_tokens_decoder(const JsonView& config, AddedTokenUnion& tokens) {
  const auto decoder = config.find("added_tokens_decoder");
  if (!decoder) {
    return {};
  }
  return decoder->for_each([&tokens](std::string_view name, const JsonView& entry) -> Status {
    std::uint32_t id = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (failure != std::errc() || end != name.data() + name.size() || id > kTokenIdMax) {
      return entry.complain("has a name that is no id; expected an integer from 0 to " +
                            std::to_string(kTokenIdMax));
    }
    TROUPE_ASSIGN(AddedToken token, read_added_token(entry, id));
    return tokens.add(entry, std::move(token));
  });
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(const JsonDocument& tokenizer,
                                          const JsonDocument* config) {
  TokenizerFile out;
  const JsonView root = tokenizer.root();
  TROUPE_ASSIGN(out.nfc, read_normalizer(root));
  TROUPE_ASSIGN(out.pattern, read_pre_tokenizer(root));
  TROUPE_TRY(check_decoder(root));
  TROUPE_ASSIGN(const Ids vocab, read_model(root, out));
  AddedTokenUnion added(vocab, out);
  TROUPE_TRY(read_added_tokens(root, added));
  if (config != nullptr) {
    const JsonView settings = config->root();
    TROUPE_TRY(read_added_tokens_decoder(settings, added));
    if (const auto pattern = settings.find("pretokenize_regex")) {
      TROUPE_ASSIGN(out.pattern, pattern->text());
    }
  }
  std::sort(out.added.begin(), out.added.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.id < b.id;
  });
  return out;
}

}  // namespace troupe
