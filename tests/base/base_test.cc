// Errors as values, ids, clock, random numbers and digests of runtime/base.
#include "runtime/base/error.h"
#include "runtime/base/ids.h"
#include "runtime/base/sha256.h"
#include "runtime/base/sources.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace troupe {
namespace {

Status refuse_odd(int value) {
  if (value % 2 != 0) {
    return error(Kind::kInvalid, "value " + std::to_string(value) + " is odd; give an even one");
  }
  return {};
}

Status try_all(const std::vector<int>& values, int& seen) {
  for (const int value : values) {
    TROUPE_TRY(refuse_odd(value));
    ++seen;
  }
  return {};
}

Result<int> half(int value) {
  TROUPE_TRY(refuse_odd(value));
  return value / 2;
}

Result<int> quarter(int value) {
  TROUPE_ASSIGN(const int once, half(value));
  TROUPE_ASSIGN(const int twice, half(once));
  return twice;
}

Result<std::unique_ptr<int>> boxed_half(int value) {
  TROUPE_ASSIGN(const int once, half(value));
  TROUPE_ASSIGN(auto box, Result<std::unique_ptr<int>>(std::make_unique<int>(once)));
  return box;
}

TEST(Error, TryGoesOnAfterSuccessAndReturnsTheFirstError) {
  int seen = 0;
  const Status status = try_all({2, 4, 5, 6}, seen);

  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().kind, Kind::kInvalid);
  EXPECT_EQ(status.error().message, "value 5 is odd; give an even one");
  EXPECT_EQ(seen, 2);
}

TEST(Error, AssignUnwrapsAValueOrReturnsTheError) {
  EXPECT_EQ(quarter(12).value(), 3);
  ASSERT_FALSE(quarter(6).has_value());
  EXPECT_EQ(quarter(6).error().message, "value 3 is odd; give an even one");
}

TEST(Error, AssignMovesWhatCannotBeCopied) {
  EXPECT_EQ(**boxed_half(8), 4);
}

TEST(Error, SaysWhereItWasMade) {
  const Status status = refuse_odd(1);

  ASSERT_FALSE(status.has_value());
  EXPECT_NE(std::string_view(status.error().where.file_name()).find("base_test.cc"),
            std::string_view::npos);
  EXPECT_NE(std::string_view(status.error().where.function_name()).find("refuse_odd"),
            std::string_view::npos);
}

TEST(Error, NamesEveryKindDifferently) {
  std::unordered_set<std::string> names;
  for (const Kind kind : {Kind::kInvalid,
                          Kind::kUnsupported,
                          Kind::kOverloaded,
                          Kind::kCancelled,
                          Kind::kDisconnected,
                          Kind::kInternal}) {
    names.emplace(name(kind));
  }
  EXPECT_EQ(names.size(), 6U);
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(CheckDeathTest, EndsTheProcessWithConditionPlaceAndDetail) {
  const int left = 1;

  EXPECT_DEATH(TROUPE_CHECK(left == 2, "pages must balance"),
               "bug at .*base_test.cc.*check `left == 2` failed: pages must balance");
}

TEST(Check, EvaluatesItsConditionOnce) {
  int count = 0;
  TROUPE_CHECK(++count == 1);
  EXPECT_EQ(count, 1);
}

TEST(Id, IsComparedAndHashedByValue) {
  std::unordered_set<RequestId> set = {RequestId{1}, RequestId{2}, RequestId{1}};

  EXPECT_EQ(set.size(), 2U);
  EXPECT_LT(RequestId{1}, RequestId{2});
  EXPECT_EQ(RequestId{}, RequestId{0});
}

TEST(Id, DoesNotTurnIntoAnotherIdOrANumber) {
  EXPECT_FALSE((std::is_convertible_v<RequestId, SequenceId>));
  EXPECT_FALSE((std::is_constructible_v<RequestId, SequenceId>));
  EXPECT_FALSE((std::is_convertible_v<std::uint64_t, RequestId>));
  EXPECT_FALSE((std::is_convertible_v<RequestId, std::uint64_t>));
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  EXPECT_EQ(clock.now(), Time{0});

  clock.advance(std::chrono::milliseconds(3));

  EXPECT_EQ(clock.now(), Time{3'000'000});
}

TEST(SteadyClock, NeverGoesBack) {
  const SteadyClock clock;
  Time last = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const Time next = clock.now();
    ASSERT_GE(next, last);
    last = next;
  }
}

// Vectors published with the paper's Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, GivesThePublishedAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32(0, {0, 0, 0, 0}),
            (Block{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
  EXPECT_EQ(philox4x32(~std::uint64_t{0}, {0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}),
            (Block{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
  EXPECT_EQ(philox4x32(0x299f31d0'a4093822U, {0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}),
            (Block{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}));
}

TEST(Rng, RepeatsItselfFromOneSeedAndDiffersFromAnother) {
  Rng first(7);
  Rng same(7);
  Rng other(8);
  int equal_to_other = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = first.next();
    ASSERT_EQ(value, same.next());
    equal_to_other += value == other.next() ? 1 : 0;
  }
  EXPECT_EQ(equal_to_other, 0);
}

TEST(Rng, StaysBelowItsBoundAndReachesEveryValue) {
  Rng rng(1);
  std::array<int, 7> seen{};
  for (int i = 0; i < 7000; ++i) {
    const std::uint64_t value = rng.below(7);
    ASSERT_LT(value, 7U);
    ++seen[value];
  }
  for (const int count : seen) {  // 1000 expected, standard deviation 29
    EXPECT_GT(count, 850);
    EXPECT_LT(count, 1150);
  }
  EXPECT_EQ(rng.below(1), 0U);
}

TEST(Rng, DrawsUniformNumbersInTheUnitInterval) {
  Rng rng(2);
  double sum = 0.0;
  for (int i = 0; i < 10000; ++i) {
    const double value = rng.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000.0, 0.5, 0.02);
}

// Expected digests: sha256sum of the same bytes.
TEST(Sha256, GivesTheKnownDigests) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PadsRightAroundTheBlockBoundary) {
  EXPECT_EQ(sha256_hex(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256_hex(std::string(56, 'a')),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(sha256_hex(std::string(57, 'a')),
            "f13b2d724659eb3bf47f2dd6af1accc87b81f09f59f2b75e5c0bed6589dfe8c6");
  EXPECT_EQ(sha256_hex(std::string(63, 'a')),
            "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  EXPECT_EQ(sha256_hex(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  EXPECT_EQ(sha256_hex(std::string(65, 'a')),
            "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0");
  EXPECT_EQ(sha256_hex(std::string(119, 'a')),
            "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
  EXPECT_EQ(sha256_hex(std::string(120, 'a')),
            "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c");
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreCut) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text.push_back(static_cast<char>('a' + i % 26));
  }
  for (std::size_t piece = 1; piece < 200; ++piece) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      hash.update(std::string_view(text).substr(at, piece));
    }
    ASSERT_EQ(hash.hex(), sha256_hex(text)) << "pieces of " << piece;
  }
}

}  // namespace
}  // namespace troupe
