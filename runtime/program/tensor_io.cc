#include "runtime/program/tensor_io.h"

#include "runtime/base/dtype.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace troupe {
namespace {

struct Slot {
  std::string_view name;
  std::array<std::uint32_t, 3> tail;  // fixed trailing dimensions, 0-terminated
  std::uint32_t free_dims;            // leading dimensions of any size
};

constexpr std::array<Slot, 6> kInputs = {{
    {"tokens", {0, 0, 0}, 1},
    {"segments", {3, 0, 0}, 1},
    {"read_pages", {2, 0, 0}, 1},
    {"write_pages", {2, 0, 0}, 1},
    {"blocks", {2, 0, 0}, 2},
    {"sampled_rows", {0, 0, 0}, 1},
}};

std::string shape_text(std::span<const std::uint32_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

Status check_shape(const NamedTensor& tensor, const Slot& slot) {
  const std::size_t fixed = slot.tail[0] == 0 ? 0 : 1;
  const bool fits = tensor.shape.size() == slot.free_dims + fixed &&
                    (fixed == 0 || tensor.shape.back() == slot.tail[0]);
  if (!fits) {
    std::string expected = "[";
    for (std::uint32_t i = 0; i < slot.free_dims; ++i) {
      expected += i == 0 ? "n" : ", m";
    }
    expected += fixed == 0 ? "]" : ", " + std::to_string(slot.tail[0]) + "]";
    return error(Kind::kInvalid,
                 "input " + std::string(slot.name) + " has shape " + shape_text(tensor.shape) +
                     ", expected " + expected);
  }
  return {};
}

template <class T>
OwnedTensor make(std::string_view name,
                 DType dtype,
                 std::vector<std::uint32_t> shape,
                 const std::vector<T>& values) {
  OwnedTensor tensor{.name = std::string(name), .dtype = dtype, .shape = std::move(shape)};
  tensor.bytes.resize(values.size() * sizeof(T));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

Result<OwnedTensor> tokens_output(const StepOutputs& outputs, DType dtype) {
  const auto count = static_cast<std::uint32_t>(outputs.results.size());
  if (dtype == DType::kI32) {
    std::vector<std::int32_t> ids;
    for (const SampleResult& r : outputs.results) {
      ids.push_back(r.token);
    }
    return make("tokens", dtype, {count}, ids);
  }
  if (dtype == DType::kI64) {
    std::vector<std::int64_t> ids;
    for (const SampleResult& r : outputs.results) {
      ids.push_back(r.token);
    }
    return make("tokens", dtype, {count}, ids);
  }
  return error(Kind::kInvalid, "output tokens can be I32 or I64, not " + std::string(name(dtype)));
}

Result<OwnedTensor> logits_output(const StepOutputs& outputs, DType dtype) {
  const std::vector<std::uint32_t> shape = {static_cast<std::uint32_t>(outputs.results.size()),
                                            outputs.vocab};
  if (dtype == DType::kF32) {
    return make(
        "logits", dtype, shape, std::vector<float>(outputs.logits.begin(), outputs.logits.end()));
  }
  if (dtype == DType::kBF16) {
    std::vector<bf16> rounded;
    rounded.reserve(outputs.logits.size());
    for (const float value : outputs.logits) {
      rounded.push_back(f32_to_bf16(value));
    }
    return make("logits", dtype, shape, rounded);
  }
  return error(Kind::kInvalid, "output logits can be F32 or BF16, not " + std::string(name(dtype)));
}

}  // namespace

Status TensorIo::integers(const NamedTensor& tensor,
                          bool wide,
                          std::vector<std::int32_t>& out) const {
  const bool i64 = tensor.dtype == DType::kI64 && wide;
  if (tensor.dtype != DType::kI32 && !i64) {
    return error(Kind::kInvalid,
                 "input " + std::string(tensor.name) + " is " + std::string(name(tensor.dtype)) +
                     ", expected I32" + (wide ? " or I64" : ""));
  }
  std::uint64_t count = 1;
  for (const std::uint32_t dim : tensor.shape) {
    count *= dim;
  }
  const std::size_t size = i64 ? 8 : 4;
  if (count * size != tensor.bytes.size()) {
    return error(Kind::kInvalid,
                 "input " + std::string(tensor.name) + " of shape " + shape_text(tensor.shape) +
                     " needs " + std::to_string(count * size) + " bytes, " +
                     std::to_string(tensor.bytes.size()) + " were given");
  }
  out.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t value = 0;
    if (i64) {
      std::memcpy(&value, tensor.bytes.data() + i * 8, 8);
    } else {
      std::int32_t narrow = 0;
      std::memcpy(&narrow, tensor.bytes.data() + i * 4, 4);
      value = narrow;
    }
    if (value < std::numeric_limits<std::int32_t>::min() ||
        value > std::numeric_limits<std::int32_t>::max()) {
      return error(Kind::kInvalid,
                   "input " + std::string(tensor.name) + " holds " + std::to_string(value) +
                       ", which is beyond 32 bits");
    }
    out[i] = static_cast<std::int32_t>(value);
  }
  return {};
}

Status TensorIo::assign(const NamedTensor& tensor, std::size_t slot, bool wide) {
  if (given_[slot]) {
    return error(Kind::kInvalid, "input " + std::string(tensor.name) + " was given twice");
  }
  TROUPE_TRY(check_shape(tensor, kInputs[slot]));
  TROUPE_TRY(integers(tensor, wide, raw_[slot]));
  shapes_[slot] = tensor.shape;
  given_[slot] = true;
  return {};
}

Result<StepInputs> TensorIo::read(std::span<const NamedTensor> tensors, bool wide) {
  std::fill(std::begin(given_), std::end(given_), false);
  for (const NamedTensor& tensor : tensors) {
    const auto* slot = std::find_if(
        kInputs.begin(), kInputs.end(), [&](const Slot& s) { return s.name == tensor.name; });
    if (slot == kInputs.end()) {
      return error(Kind::kInvalid, "a step has no input named " + std::string(tensor.name));
    }
    TROUPE_TRY(assign(tensor, static_cast<std::size_t>(slot - kInputs.begin()), wide));
  }
  for (std::size_t i = 0; i < kInputs.size(); ++i) {
    if (!given_[i]) {
      return error(Kind::kInvalid, "input " + std::string(kInputs[i].name) + " is missing");
    }
  }
  const std::size_t segments = raw_[1].size() / 3;
  if (raw_[2].size() != segments * 2 || raw_[3].size() != raw_[0].size() * 2) {
    return error(Kind::kInvalid,
                 "inputs disagree: " + std::to_string(segments) + " segments with " +
                     std::to_string(raw_[2].size() / 2) + " read pages, " +
                     std::to_string(raw_[0].size()) + " tokens with " +
                     std::to_string(raw_[3].size() / 2) + " write pages");
  }
  const auto u32 = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };
  segments_.clear();
  write_pages_.clear();
  blocks_.clear();
  sampled_.clear();
  for (std::size_t i = 0; i < segments; ++i) {
    segments_.push_back({.rows = u32(raw_[1][3 * i]),
                         .first_position = raw_[1][3 * i + 1],
                         .read_page = {u32(raw_[2][2 * i]), u32(raw_[2][2 * i + 1])},
                         .block_row = u32(raw_[1][3 * i + 2])});
  }
  for (std::size_t i = 0; i < raw_[3].size(); i += 2) {
    write_pages_.push_back({u32(raw_[3][i]), u32(raw_[3][i + 1])});
  }
  for (std::size_t i = 0; i < raw_[4].size(); i += 2) {
    blocks_.push_back({u32(raw_[4][i]), u32(raw_[4][i + 1])});
  }
  for (const std::int32_t row : raw_[5]) {
    sampled_.push_back({.row = u32(row)});
  }
  return StepInputs{.tokens = raw_[0],
                    .write_pages = write_pages_,
                    .segments = segments_,
                    .blocks = blocks_,
                    .block_width = shapes_[4][1],
                    .sampled = sampled_};
}

Result<std::vector<NamedTensor>> TensorIo::by_slot(std::span<const NamedTensor> tensors) {
  if (tensors.size() != kInputs.size()) {
    return error(Kind::kInvalid,
                 "a step has " + std::to_string(kInputs.size()) + " input slots, " +
                     std::to_string(tensors.size()) + " tensors were given");
  }
  std::vector<NamedTensor> named(tensors.begin(), tensors.end());
  for (std::size_t i = 0; i < named.size(); ++i) {
    named[i].name = kInputs[i].name;
  }
  return named;
}

Result<std::vector<OwnedTensor>> TensorIo::write(const StepOutputs& outputs,
                                                 std::span<const TensorSpec> specs) {
  std::vector<OwnedTensor> tensors;
  for (const TensorSpec& spec : specs) {
    if (spec.name == "tokens") {
      TROUPE_ASSIGN(auto tensor, tokens_output(outputs, spec.dtype));
      tensors.push_back(std::move(tensor));
    } else if (spec.name == "logits") {
      TROUPE_ASSIGN(auto tensor, logits_output(outputs, spec.dtype));
      tensors.push_back(std::move(tensor));
    } else {
      return error(Kind::kInvalid, "a step has no output named " + std::string(spec.name));
    }
  }
  return tensors;
}

}  // namespace troupe
