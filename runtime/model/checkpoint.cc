#include "runtime/model/checkpoint.h"

#include "runtime/base/sha256.h"
#include "runtime/model/layout.h"
#include "runtime/model/message.h"
#include "runtime/model/parameters.h"
#include "runtime/model/tensor_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>

namespace troupe {
namespace {

constexpr std::uint32_t kBlock = 128;  // of FP8 scales, both ways

enum class Form : std::uint8_t {
  kMatrix,  // may be block FP8
  kExact,   // a matrix that no release quantises
  kVector,
  kConv,
};

struct Naming {
  std::string_view ours;
  std::string_view stored;
  Form form;
};

constexpr std::array<Naming, 7> kTopNames = {
    {{"embed", "embed_tokens.weight", Form::kExact},
     {"final_norm", "norm.weight", Form::kVector},
     {"head", "lm_head.weight", Form::kMatrix},
     {"mtp.fc", "mtp.fc.weight", Form::kMatrix},
     {"mtp.embedding_norm", "mtp.pre_fc_norm_embedding.weight", Form::kVector},
     {"mtp.hidden_norm", "mtp.pre_fc_norm_hidden.weight", Form::kVector},
     {"mtp.norm", "mtp.norm.weight", Form::kVector}}};

constexpr std::array<Naming, 26> kLayerNames = {
    {{"mixer_norm", "input_layernorm.weight", Form::kVector},
     {"ffn_norm", "post_attention_layernorm.weight", Form::kVector},
     {"gdn.qkv", "linear_attn.in_proj_qkv.weight", Form::kMatrix},
     {"gdn.z", "linear_attn.in_proj_z.weight", Form::kMatrix},
     {"gdn.b", "linear_attn.in_proj_b.weight", Form::kExact},
     {"gdn.a", "linear_attn.in_proj_a.weight", Form::kExact},
     {"gdn.conv", "linear_attn.conv1d.weight", Form::kConv},
     {"gdn.a_log", "linear_attn.A_log", Form::kVector},
     {"gdn.dt_bias", "linear_attn.dt_bias", Form::kVector},
     {"gdn.norm", "linear_attn.norm.weight", Form::kVector},
     {"gdn.out", "linear_attn.out_proj.weight", Form::kMatrix},
     {"attn.q", "self_attn.q_proj.weight", Form::kMatrix},
     {"attn.gate", "self_attn.q_proj.weight", Form::kMatrix},
     {"attn.k", "self_attn.k_proj.weight", Form::kMatrix},
     {"attn.v", "self_attn.v_proj.weight", Form::kMatrix},
     {"attn.q_norm", "self_attn.q_norm.weight", Form::kVector},
     {"attn.k_norm", "self_attn.k_norm.weight", Form::kVector},
     {"attn.o", "self_attn.o_proj.weight", Form::kMatrix},
     {"mlp.gate", "mlp.gate_proj.weight", Form::kMatrix},
     {"mlp.up", "mlp.up_proj.weight", Form::kMatrix},
     {"mlp.down", "mlp.down_proj.weight", Form::kMatrix},
     {"moe.router", "mlp.gate.weight", Form::kExact},
     {"moe.shared.gate", "mlp.shared_expert.gate_proj.weight", Form::kMatrix},
     {"moe.shared.up", "mlp.shared_expert.up_proj.weight", Form::kMatrix},
     {"moe.shared.down", "mlp.shared_expert.down_proj.weight", Form::kMatrix},
     {"moe.shared_gate", "mlp.shared_expert_gate.weight", Form::kExact}}};

// Where a parameter is to be found and what the stored tensor must look like.
struct Place {
  std::string stored;  // without prefix
  std::vector<std::uint64_t> shape;
  Form form = Form::kMatrix;
  std::uint32_t first_row = 0;
  RowMap row_map;
};

// "layers.7." or "mtp.layers.0." at the start of a name, or nothing.
std::string_view layer_prefix(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = name.find(kLayers);
  return at == std::string_view::npos ? ""
                                      : name.substr(0, name.find('.', at + kLayers.size()) + 1);
}

const Naming& naming_of(std::span<const Naming> names, std::string_view ours) {
  const auto found = std::ranges::find(names, ours, &Naming::ours);
  TROUPE_CHECK(found != names.end(), ours);
  return *found;
}

// Finds each parameter in the table and checks what is stored there.
class Binder final {
 public:
  Binder(TensorTable& table, const ModelConfig& config) : table_(table), config_(config) {}

  [[nodiscard]] Result<TensorView> bind(const ExpectedTensor& expected) {
    const Place place = place_of(expected);
    TensorTable::Entry* entry = table_.find(place.stored);
    if (entry == nullptr) {
      return error(Kind::kInvalid, missing(expected, place));
    }
    TROUPE_TRY(check(*entry, place));
    entry->used = true;
    TensorView view{.name = expected.name,
                    .dtype = *entry->tensor->dtype,
                    .rows = expected.rows,
                    .columns = expected.columns,
                    .data = entry->file->data(*entry->tensor),
                    .first_row = place.first_row,
                    .row_map = place.row_map};
    if (view.dtype == DType::kF8E4M3) {
      TROUPE_TRY(bind_scale(*entry, place, view));
    }
    return view;
  }

 private:
  [[nodiscard]] Place place_of(const ExpectedTensor& expected) const {
    const std::string_view name = expected.name;
    const std::string prefix(layer_prefix(name));
    if (prefix.empty()) {
      return plain(naming_of(kTopNames, name), "", expected);
    }
    const std::string_view tail = name.substr(prefix.size());
    if (tail.starts_with("moe.experts.")) {
      return expert(prefix, tail, expected);
    }
    const Naming& naming = naming_of(kLayerNames, tail);
    if (tail == "attn.q" || tail == "attn.gate") {
      return query(naming, prefix, expected);
    }
    if (tail.starts_with("gdn.")) {
      return gdn(naming, prefix, expected);
    }
    return plain(naming, prefix, expected);
  }

  [[nodiscard]] static Place plain(const Naming& naming,
                                   const std::string& prefix,
                                   const ExpectedTensor& expected) {
    Place place{.stored = prefix + std::string(naming.stored),
                .shape = {},
                .form = naming.form,
                .row_map = {}};
    if (naming.form == Form::kVector) {
      place.shape = {expected.columns};
    } else if (naming.form == Form::kConv) {
      place.shape = {expected.rows, 1, expected.columns};
    } else {
      place.shape = {expected.rows, expected.columns};
    }
    return place;
  }

  [[nodiscard]] Place query(const Naming& naming,
                            const std::string& prefix,
                            const ExpectedTensor& expected) const {
    Place place = plain(naming, prefix, expected);
    if (config_.attention_output_gate) {
      place.shape[0] *= 2;
      place.row_map = naming.ours == "attn.q" ? query_rows(config_) : gate_rows(config_);
    }
    return place;
  }

  // Which of the two released layouts a layer has is asked of its tensors, not of the config.
  [[nodiscard]] Place gdn(const Naming& naming,
                          const std::string& prefix,
                          const ExpectedTensor& expected) const {
    Place place = plain(naming, prefix, expected);
    const std::string qkvz = prefix + "linear_attn.in_proj_qkvz.weight";
    const std::string ba = prefix + "linear_attn.in_proj_ba.weight";
    const bool first = naming.ours == "gdn.qkv" || naming.ours == "gdn.b";
    if ((naming.ours == "gdn.qkv" || naming.ours == "gdn.z") && table_.has(qkvz)) {
      place.stored = qkvz;
      place.shape[0] = std::uint64_t{config_.gdn_conv_channels()} + config_.gdn_value_width();
      place.row_map = first ? fused_qkv_rows(config_) : fused_z_rows(config_);
    } else if ((naming.ours == "gdn.b" || naming.ours == "gdn.a") && table_.has(ba)) {
      place.stored = ba;
      place.shape[0] = std::uint64_t{2} * config_.gdn_value_heads;
      place.row_map = first ? fused_b_rows(config_) : fused_a_rows(config_);
    }
    return place;
  }

  // `tail` is "moe.experts.E.PART".
  [[nodiscard]] Place expert(const std::string& prefix,
                             std::string_view tail,
                             const ExpectedTensor& expected) const {
    constexpr std::string_view kExperts = "moe.experts.";
    const std::string_view part = tail.substr(tail.rfind('.') + 1);
    const std::string_view digits = tail.substr(kExperts.size(), tail.rfind('.') - kExperts.size());
    std::uint32_t index = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), index);
    const std::string base = prefix + "mlp.experts.";
    const std::string fused = base + (part == "down" ? "down_proj" : "gate_up_proj");
    if (!table_.has(fused)) {
      return {.stored = message(base, digits, ".", part, "_proj.weight"),
              .shape = {expected.rows, expected.columns},
              .row_map = {}};
    }
    const std::uint32_t rows = part == "down" ? expected.rows : 2 * expected.rows;
    return {.stored = fused,
            .shape = {config_.experts, rows, expected.columns},
            .first_row = index * rows + (part == "up" ? expected.rows : 0),
            .row_map = {}};
  }

  [[nodiscard]] std::string missing(const ExpectedTensor& expected, const Place& place) const {
    const bool mtp = expected.name.starts_with("mtp.");
    return message(table_.described(),
                   mtp ? ": the MTP layer is incomplete" : "",
                   ": no file has tensor \"",
                   place.stored,
                   "\" under any known prefix; config.json asks for it with shape ",
                   shape_text(place.shape),
                   expected.name == "head" ? " because tie_word_embeddings is false" : "");
  }

  template <class... Parts>
  [[nodiscard]] static tl::unexpected<Error> fail(const TensorTable::Entry& entry,
                                                  const Parts&... parts) {
    return error(Kind::kInvalid,
                 message(entry.file->name(), ": tensor \"", entry.tensor->name, "\" ", parts...));
  }

  [[nodiscard]] static Status check(const TensorTable::Entry& entry, const Place& place) {
    const StoredTensor& tensor = *entry.tensor;
    if (tensor.shape != place.shape) {
      return fail(entry,
                  "has shape ",
                  shape_text(tensor.shape),
                  ", config.json asks for ",
                  shape_text(place.shape));
    }
    const bool fp8 = tensor.dtype == DType::kF8E4M3;
    if (fp8 && place.shape.size() == 3 && place.form == Form::kMatrix) {
      return error(
          Kind::kUnsupported,
          message(entry.file->name(),
                  ": tensor \"",
                  tensor.name,
                  "\" holds all experts in F8_E4M3; Troupe runs FP8 experts stored one by one"));
    }
    const bool plain =
        tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kF32;
    if (!plain && !(fp8 && place.form == Form::kMatrix)) {
      return fail(entry,
                  "is ",
                  tensor.dtype_name,
                  ", expected BF16, F16 or F32",
                  place.form == Form::kMatrix ? ", or F8_E4M3 with scales" : "");
    }
    return check_alignment(entry, size_of(*tensor.dtype));
  }

  [[nodiscard]] static Status check_alignment(const TensorTable::Entry& entry,
                                              std::size_t element) {
    if (reinterpret_cast<std::uintptr_t>(entry.file->data(*entry.tensor)) % element != 0) {
      return fail(entry,
                  "is not aligned to its ",
                  element,
                  "-byte elements: save the file again with safetensors");
    }
    return {};
  }

  [[nodiscard]] Status bind_scale(const TensorTable::Entry& weight,
                                  const Place& place,
                                  TensorView& view) {
    TensorTable::Entry* scale = table_.find(place.stored + "_scale_inv");
    if (scale == nullptr) {
      return fail(
          weight, "is F8_E4M3, but no file has its scales \"", weight.tensor->name, "_scale_inv\"");
    }
    const std::vector<std::uint64_t> blocks = {(place.shape[0] + kBlock - 1) / kBlock,
                                               (place.shape[1] + kBlock - 1) / kBlock};
    if (scale->tensor->shape != blocks) {
      return fail(*scale,
                  "has shape ",
                  shape_text(scale->tensor->shape),
                  ", expected ",
                  shape_text(blocks),
                  ": one scale for each 128 x 128 block of ",
                  shape_text(place.shape));
    }
    if (scale->tensor->dtype != DType::kBF16 && scale->tensor->dtype != DType::kF32) {
      return fail(*scale, "is ", scale->tensor->dtype_name, ", expected BF16 or F32");
    }
    TROUPE_TRY(check_alignment(*scale, size_of(*scale->tensor->dtype)));
    scale->used = true;
    view.scale = scale->file->data(*scale->tensor);
    view.scale_dtype = *scale->tensor->dtype;
    view.scale_columns = static_cast<std::uint32_t>(blocks[1]);
    return {};
  }

  TensorTable& table_;
  const ModelConfig& config_;
};

class MappedCheckpoint final : public Checkpoint {
 public:
  MappedCheckpoint(TensorTable table, std::vector<TensorView> tensors)
      : table_(std::move(table)), tensors_(std::move(tensors)) {
    for (const TensorView& tensor : tensors_) {
      by_name_.emplace(tensor.name, &tensor);
    }
  }

  [[nodiscard]] std::span<const TensorView> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorView* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  [[nodiscard]] bool has_mtp() const override { return table_.has_mtp(); }
  [[nodiscard]] std::uint64_t file_bytes() const override {
    std::uint64_t bytes = 0;
    for (const auto& file : table_.files()) {
      bytes += file->bytes();
    }
    return bytes;
  }
  [[nodiscard]] std::string header_digest() const override {
    Sha256 digest;
    for (const auto& file : table_.files()) {
      // Each field ends in a line feed, which no file name and no number has, so no two lists of
      // files read alike.
      digest.update(message(file->name(), "\n", file->bytes(), "\n", file->header().size(), "\n"));
      digest.update(file->header());
    }
    return digest.hex();
  }
  [[nodiscard]] std::string file_identity() const override {
    std::string text;
    for (const auto& file : table_.files()) {
      text += message(file->name(), "\n", file->identity(), "\n");
    }
    return text;
  }
  void release(const TensorView& tensor) const override {
    const std::size_t row_bytes = tensor.columns * size_of(tensor.dtype);
    std::size_t first = tensor.first_row;
    std::size_t last = first + tensor.rows;
    if (!tensor.row_map.empty()) {
      const auto [low, high] = std::ranges::minmax(tensor.row_map);
      first = low;
      last = std::size_t{high} + 1;
    }
    // Whole pages around the rows: a neighbour that shares one reads it from the file again.
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto data = reinterpret_cast<std::uintptr_t>(tensor.data);
    const std::uintptr_t begin = (data + first * row_bytes) / page * page;
    ::madvise(reinterpret_cast<void*>(begin), data + last * row_bytes - begin, MADV_DONTNEED);
  }

 private:
  TensorTable table_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, const TensorView*> by_name_;
};

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::filesystem::path& directory,
                                                     const ModelConfig& config) {
  TROUPE_ASSIGN(TensorTable table, TensorTable::open(directory));
  std::vector<ExpectedTensor> expected = expected_parameters(config);
  if (config.tie_word_embeddings && table.has("lm_head.weight")) {
    // A stored head is the head, whatever the config says.
    expected.push_back({"head", config.vocab_size, config.hidden_size});
  }
  if (table.has_mtp()) {
    const std::vector<ExpectedTensor> mtp = expected_mtp_parameters(config);
    expected.insert(expected.end(), mtp.begin(), mtp.end());
  }
  Binder binder(table, config);
  std::vector<TensorView> tensors;
  tensors.reserve(expected.size());
  for (const ExpectedTensor& tensor : expected) {
    TROUPE_ASSIGN(TensorView view, binder.bind(tensor));
    tensors.push_back(std::move(view));
  }
  TROUPE_TRY(table.check_all_used());
  return std::make_unique<MappedCheckpoint>(std::move(table), std::move(tensors));
}

}  // namespace troupe
