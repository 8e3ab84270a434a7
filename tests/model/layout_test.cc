#include "runtime/model/layout.h"

#include "tests/model/fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace troupe {
namespace {

// The published formulas, entry by entry, for the fixture's sizes: nk 2, nv 4 (r = 2), dk 2, dv 3.
constexpr std::uint32_t kKeyHeads = 2, kRatio = 2, kKeyDim = 2, kValueDim = 3;
constexpr std::uint32_t kGroup = 2 * kKeyDim + 2 * kRatio * kValueDim;

ModelConfig config() {
  return fixture::config_of(fixture::next_config());
}

bool covers(const std::vector<RowMap>& maps, std::uint32_t rows) {
  RowMap all;
  for (const RowMap& map : maps) {
    all.insert(all.end(), map.begin(), map.end());
  }
  std::ranges::sort(all);
  RowMap expected(rows);
  std::iota(expected.begin(), expected.end(), 0U);
  return all == expected;
}

TEST(Layout, UnfusesQueriesKeysAndValues) {
  RowMap expected;
  for (std::uint32_t offset : {0U, kKeyDim}) {
    for (std::uint32_t g = 0; g < kKeyHeads; ++g) {
      for (std::uint32_t i = 0; i < kKeyDim; ++i) {
        expected.push_back(g * kGroup + offset + i);
      }
    }
  }
  for (std::uint32_t h = 0; h < kKeyHeads * kRatio; ++h) {
    for (std::uint32_t i = 0; i < kValueDim; ++i) {
      expected.push_back(h / kRatio * kGroup + 2 * kKeyDim + h % kRatio * kValueDim + i);
    }
  }

  EXPECT_EQ(fused_qkv_rows(config()), expected);
}

TEST(Layout, UnfusesTheOutputGate) {
  RowMap expected;
  for (std::uint32_t h = 0; h < kKeyHeads * kRatio; ++h) {
    for (std::uint32_t i = 0; i < kValueDim; ++i) {
      expected.push_back(h / kRatio * kGroup + 2 * kKeyDim + kRatio * kValueDim +
                         h % kRatio * kValueDim + i);
    }
  }

  EXPECT_EQ(fused_z_rows(config()), expected);
}

TEST(Layout, UnfusesBetaBeforeDecay) {
  EXPECT_EQ(fused_b_rows(config()), (RowMap{0, 1, 4, 5}));
  EXPECT_EQ(fused_a_rows(config()), (RowMap{2, 3, 6, 7}));
}

TEST(Layout, SplitsQueryAndGateHeadByHead) {
  EXPECT_EQ(query_rows(config()), (RowMap{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(gate_rows(config()), (RowMap{4, 5, 6, 7, 12, 13, 14, 15}));
}

TEST(Layout, UsesEveryStoredRowOnce) {
  EXPECT_TRUE(covers({fused_qkv_rows(config()), fused_z_rows(config())}, kKeyHeads * kGroup));
  EXPECT_TRUE(covers({fused_b_rows(config()), fused_a_rows(config())}, 2 * kKeyHeads * kRatio));
  EXPECT_TRUE(covers({query_rows(config()), gate_rows(config())}, 16));
}

}  // namespace
}  // namespace troupe
