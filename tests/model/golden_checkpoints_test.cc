// The golden models and the demo model open, and what the views show is what the formulas say.
#include "runtime/model/checkpoint.h"
#include "runtime/model/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace troupe {
namespace {

struct Opened {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
};

Opened open(const std::string& relative) {
  const std::filesystem::path directory = std::filesystem::path(TROUPE_SOURCE_DIR) / relative;
  ModelConfig config = read_model_config(directory).value();
  auto checkpoint = Checkpoint::open(directory, config).value();
  return {std::move(config), std::move(checkpoint)};
}

Opened golden(const std::string& name) {
  return open("tests/golden/data/" + name);
}

// Logical element of a view, scaled where it is FP8.
float element(const TensorView& view, std::uint32_t row, std::uint32_t column) {
  const std::uint32_t stored = view.stored_row(row);
  const float value =
      load_as_f32(view.data, view.dtype, std::size_t{stored} * view.columns + column);
  return view.scale == nullptr
             ? value
             : value * load_as_f32(view.scale,
                                   view.scale_dtype,
                                   stored / 128 * view.scale_columns + column / 128);
}

TEST(GoldenCheckpoint, OpensFusedProjections) {
  const Opened model = golden("next-tiny");

  // 154 stored; 3 x (qkvz and ba count twice), 1 x q_proj counts twice.
  EXPECT_EQ(model.checkpoint->tensors().size(), 154U + 3 * 2 + 1);
  EXPECT_EQ(model.checkpoint->find("layers.0.gdn.a_log")->dtype, DType::kF32);
  EXPECT_FALSE(model.checkpoint->has_mtp());
}

TEST(GoldenCheckpoint, OpensMixedLayersInThreeShards) {
  const Opened model = golden("next-mixed");

  EXPECT_EQ(model.checkpoint->tensors().size(), 174U + 6 * 2 + 2);
  EXPECT_EQ(model.checkpoint->find("head"), nullptr);
  EXPECT_EQ(model.checkpoint->file_bytes(), 322720U + 316384U + 321312U);
  EXPECT_EQ(model.checkpoint->find("layers.0.gdn.a_log")->dtype, DType::kBF16);
}

TEST(GoldenCheckpoint, OpensFusedExpertsAndMtp) {
  const Opened model = golden("q35-moe");

  // 112 stored, 21 of them visual; 5 layers with 2 fused tensors for 48 views, 2 q_proj for two
  // views each.
  EXPECT_EQ(model.checkpoint->tensors().size(), 112U - 21 + 5 * 46 + 2);
  EXPECT_TRUE(model.checkpoint->has_mtp());
}

TEST(GoldenCheckpoint, OpensADenseTiedModelWithoutMtp) {
  const Opened model = golden("q35-dense");

  EXPECT_EQ(model.checkpoint->tensors().size(), 2U + 3 * 14 + 12);
  EXPECT_EQ(model.checkpoint->find("head"), nullptr);
  EXPECT_FALSE(model.checkpoint->has_mtp());
}

TEST(GoldenCheckpoint, OpensTheDemoModelWithMtp) {
  const Opened model = open("models/demo");

  EXPECT_TRUE(model.checkpoint->has_mtp());
  EXPECT_EQ(
      model.checkpoint->tensors().size(),
      expected_parameters(model.config).size() + expected_mtp_parameters(model.config).size());
}

TEST(GoldenCheckpoint, MapsRowsOfTheFusedLayoutByTheFormula) {
  const Opened model = golden("next-tiny");
  const std::uint32_t nk = 2, r = 2, dk = 16, dv = 8, group = 2 * dk + 2 * r * dv;
  const TensorView* qkv = model.checkpoint->find("layers.1.gdn.qkv");
  const TensorView* z = model.checkpoint->find("layers.1.gdn.z");
  const TensorView* b = model.checkpoint->find("layers.1.gdn.b");
  const TensorView* a = model.checkpoint->find("layers.1.gdn.a");

  for (std::uint32_t g = 0; g < nk; ++g) {
    for (std::uint32_t i = 0; i < dk; ++i) {
      EXPECT_EQ(qkv->stored_row(g * dk + i), g * group + i);
      EXPECT_EQ(qkv->stored_row(nk * dk + g * dk + i), g * group + dk + i);
    }
    for (std::uint32_t j = 0; j < r; ++j) {
      for (std::uint32_t i = 0; i < dv; ++i) {
        const std::uint32_t row = (g * r + j) * dv + i;
        EXPECT_EQ(qkv->stored_row(2 * nk * dk + row), g * group + 2 * dk + j * dv + i);
        EXPECT_EQ(z->stored_row(row), g * group + 2 * dk + r * dv + j * dv + i);
      }
      EXPECT_EQ(b->stored_row(g * r + j), g * 2 * r + j);
      EXPECT_EQ(a->stored_row(g * r + j), g * 2 * r + r + j);
    }
  }
  EXPECT_EQ(qkv->data, z->data);
  EXPECT_EQ(b->data, a->data);
}

// The two files hold the same weights, one fused in BF16, one expert by expert in FP8: every
// element must agree within the half step of E4M3, 1/16 of a value, or 2^-10 of the block's scale
// near zero.
TEST(GoldenCheckpoint, ShowsTheSameWeightsInFp8AndInBf16) {
  const Opened fp8 = golden("q35-moe-fp8");
  const Opened bf16 = golden("q35-moe");
  ASSERT_EQ(fp8.checkpoint->tensors().size(), bf16.checkpoint->tensors().size());

  std::size_t quantised = 0;
  for (const TensorView& view : fp8.checkpoint->tensors()) {
    const TensorView* twin = bf16.checkpoint->find(view.name);
    ASSERT_NE(twin, nullptr) << view.name;
    quantised += view.scale != nullptr ? 1U : 0U;
    std::size_t far = 0;
    for (std::uint32_t row = 0; row < view.rows; ++row) {
      for (std::uint32_t column = 0; column < view.columns; ++column) {
        const float expected = element(*twin, row, column);
        const float tolerance = view.scale == nullptr ? 0.0F : std::abs(expected) / 15.0F + 1e-5F;
        far += std::abs(element(view, row, column) - expected) <= tolerance ? 0U : 1U;
      }
    }
    EXPECT_EQ(far, 0U) << view.name << " of " << view.rows << " x " << view.columns;
  }
  // 272 stored tensors are FP8; the two q_proj show as query and gate.
  EXPECT_EQ(quantised, 274U);
}

}  // namespace
}  // namespace troupe
