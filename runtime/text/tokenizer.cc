#include "runtime/text/tokenizer.h"

#include "runtime/text/added_tokens.h"
#include "runtime/text/bpe.h"
#include "runtime/text/json_view.h"
#include "runtime/text/splitter.h"
#include "runtime/text/tokenizer_file.h"
#include "runtime/text/unicode.h"

#include <unordered_map>
#include <utility>

namespace troupe {
namespace {

enum class Mark : std::uint8_t { kPlain, kAdded, kSpecial };

// True for the folders whose saved pattern may be too old.
bool is_qwen35(const JsonDocument& config) {
  const JsonView root = config.root();
  const auto inner = root.find("text_config");
  for (const auto& owner : {std::optional(root), inner}) {
    const auto type = owner ? owner->find("model_type") : std::nullopt;
    if (type && type->is_text() && type->text()->substr(0, 7) == "qwen3_5") {
      return true;
    }
  }
  return false;
}

}  // namespace

struct Tokenizer::Parts {
  Parts(TokenizerFile file_in, std::unique_ptr<Splitter> splitter_in)
      : file(std::move(file_in)),
        splitter(std::move(splitter_in)),
        encoder(file.byte_ids, file.merges),
        finder(file.added),
        marks(file.tokens.size(), Mark::kPlain) {
    ids.reserve(file.tokens.size());
    for (const AddedToken& token : file.added) {
      marks[token.id] = token.special ? Mark::kSpecial : Mark::kAdded;
      ids.emplace(file.tokens[token.id], token.id);
    }
    for (std::uint32_t id = 0; id < file.tokens.size(); ++id) {
      if (!file.tokens[id].empty()) {
        ids.emplace(file.tokens[id], id);  // does nothing where an added token has that text
      }
    }
    file.merges = {};  // the encoder has its own form
  }

  // Appends the ids of text without added tokens.
  Status encode(std::string_view text, std::vector<std::uint32_t>& out) const {
    if (text.empty()) {
      return {};
    }
    const std::string composed = file.nfc ? compose_nfc(text) : std::string(text);
    std::vector<std::string_view> pieces;
    TROUPE_TRY(splitter->split(composed, pieces));
    for (const std::string_view piece : pieces) {
      encoder.encode(piece, out);
    }
    return {};
  }

  [[nodiscard]] Mark mark(std::uint32_t id) const {
    return id < marks.size() ? marks[id] : Mark::kPlain;
  }

  TokenizerFile file;
  std::unique_ptr<Splitter> splitter;
  BytePairEncoder encoder;
  AddedTokenFinder finder;
  std::vector<Mark> marks;                                  // by id
  std::unordered_map<std::string_view, std::uint32_t> ids;  // keys point into file.tokens
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::make(const JsonDocument& tokenizer,
                                                         const JsonDocument* config,
                                                         const TokenizerOptions& options,
                                                         bool qwen35) {
  TROUPE_ASSIGN(TokenizerFile file, read_tokenizer_file(tokenizer, config));
  std::string source = tokenizer.name() + ": the pre-tokenizer pattern";
  if (!options.pattern.empty()) {
    file.pattern = options.pattern;
    source = "the pattern in the tokenizer options";
  } else if (qwen35 && file.pattern == kQwen2Pattern) {
    file.pattern = kQwen35Pattern;
  }
  auto splitter = Splitter::open(file.pattern);
  if (!splitter) {
    return error(Kind::kInvalid, source + " is no regular expression: " + splitter.error().message);
  }
  auto parts = std::make_unique<const Parts>(std::move(file), std::move(*splitter));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::open(const std::filesystem::path& directory,
                                                         const TokenizerOptions& options) {
  TROUPE_ASSIGN(const auto tokenizer, JsonDocument::open(directory / "tokenizer.json"));
  TROUPE_ASSIGN(const auto config,
                JsonDocument::open_if_present(directory / "tokenizer_config.json"));
  TROUPE_ASSIGN(const auto model, JsonDocument::open_if_present(directory / "config.json"));
  return make(*tokenizer, config.get(), options, model != nullptr && is_qwen35(*model));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view tokenizer_json,
                                                          std::string_view tokenizer_config_json,
                                                          const TokenizerOptions& options) {
  TROUPE_ASSIGN(const auto tokenizer, JsonDocument::parse(tokenizer_json, "tokenizer.json"));
  std::unique_ptr<const JsonDocument> config;
  if (!tokenizer_config_json.empty()) {
    TROUPE_ASSIGN(config, JsonDocument::parse(tokenizer_config_json, "tokenizer_config.json"));
  }
  return make(*tokenizer, config.get(), options, false);
}

Result<std::vector<std::uint32_t>> Tokenizer::encode(std::string_view text,
                                                     const EncodeOptions& options) const {
  if (text.size() > kTextBytesMax) {
    return error(Kind::kInvalid,
                 "a text of " + std::to_string(text.size()) +
                     " bytes cannot be encoded; the limit is " + std::to_string(kTextBytesMax));
  }
  std::string repaired;
  if (!is_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  std::vector<std::uint32_t> ids;
  std::size_t done = 0;
  while (options.parse_special) {
    const auto found = parts_->finder.find(text, done);
    if (!found) {
      break;
    }
    TROUPE_TRY(parts_->encode(text.substr(done, found->begin - done), ids));
    ids.push_back(found->id);
    done = found->end;
  }
  TROUPE_TRY(parts_->encode(text.substr(done), ids));
  return ids;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool skip_special) const {
  std::string bytes_of_all;
  for (const std::uint32_t id : ids) {
    if (!(skip_special && is_special(id))) {
      bytes_of_all += bytes(id);
    }
  }
  return replace_invalid_utf8(bytes_of_all);
}

std::string_view Tokenizer::bytes(std::uint32_t id) const {
  return id < parts_->file.tokens.size() ? std::string_view(parts_->file.tokens[id])
                                         : std::string_view();
}

std::uint32_t Tokenizer::vocab_size() const {
  return static_cast<std::uint32_t>(parts_->file.tokens.size());
}

std::optional<std::uint32_t> Tokenizer::id_of(std::string_view text) const {
  const auto found = parts_->ids.find(text);
  return found == parts_->ids.end() ? std::nullopt : std::optional(found->second);
}

bool Tokenizer::is_added(std::uint32_t id) const {
  return parts_->mark(id) != Mark::kPlain;
}
bool Tokenizer::is_special(std::uint32_t id) const {
  return parts_->mark(id) == Mark::kSpecial;
}
const std::string& Tokenizer::pattern() const {
  return parts_->file.pattern;
}

}  // namespace troupe
