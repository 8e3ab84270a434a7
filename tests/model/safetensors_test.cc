// Damaged files, each with the whole message.
#include "runtime/model/safetensors.h"

#include "tests/model/fixture.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace troupe {
namespace {

std::string file_error(std::string_view bytes) {
  const fixture::TempDirectory directory;
  directory.write("m.safetensors", bytes);
  const auto file = SafetensorsFile::open(directory.path() / "m.safetensors", "m.safetensors");
  return file ? "opened" : file.error().message;
}

std::string header_error(std::string_view header, std::uint64_t data_bytes) {
  return file_error(fixture::file_with(header, data_bytes));
}

TEST(SafetensorsFile, GivesShapesTypesAndBytes) {
  const fixture::TempDirectory directory;
  directory.write("m.safetensors",
                  fixture::file_with(R"({"__metadata__":{"format":"pt"},)"
                                     R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                                     R"("b":{"dtype":"U16","shape":[],"data_offsets":[12,14]}})",
                                     14));

  const auto file =
      SafetensorsFile::open(directory.path() / "m.safetensors", "m.safetensors").value();

  ASSERT_EQ(file->tensors().size(), 2U);
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(file->tensors()[0].dtype, DType::kBF16);
  EXPECT_EQ(file->tensors()[1].dtype, std::nullopt);
  EXPECT_EQ(file->format(), "pt");
  EXPECT_EQ(static_cast<int>(file->data(file->tensors()[1])[1]), 13 * 7 % 64);
}

TEST(SafetensorsFile, RefusesAMissingFile) {
  const auto file = SafetensorsFile::open("/nowhere/m.safetensors", "m.safetensors");

  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().message, "m.safetensors: can't be opened: No such file or directory");
}

TEST(SafetensorsFile, RefusesADirectory) {
  const auto file = SafetensorsFile::open("/", "m.safetensors");

  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().message, "m.safetensors: not a regular file");
}

TEST(SafetensorsFile, RefusesAnEmptyFile) {
  EXPECT_EQ(file_error(""), "m.safetensors: truncated: 0 bytes, a safetensors file has at least 8");
}

TEST(SafetensorsFile, RefusesAnAbsurdHeaderLength) {
  EXPECT_EQ(file_error("<!DOCTYPE html>"),
            "m.safetensors: header length is 5789751444030890300, expected 2 to 100000000 bytes: "
            "not a safetensors file");
}

TEST(SafetensorsFile, RefusesAHeaderOfNoBytes) {
  EXPECT_EQ(
      file_error(std::string(8, '\0')),
      "m.safetensors: header length is 0, expected 2 to 100000000 bytes: not a safetensors file");
}

TEST(SafetensorsFile, RefusesATruncatedHeader) {
  EXPECT_EQ(file_error(fixture::file_with(R"({"a":{"dtype":"U8"}})", 0).substr(0, 20)),
            "m.safetensors: truncated: header of 20 bytes, but the file has 12 after the length: "
            "download it again");
}

TEST(SafetensorsFile, RefusesAHeaderThatIsNotJson) {
  EXPECT_EQ(header_error("{\"a\":", 0), "m.safetensors: header: not a JSON object");
}

TEST(SafetensorsFile, RefusesAHeaderThatNestsDeep) {
  EXPECT_EQ(header_error("{\"a\":" + std::string(100'000, '['), 0),
            "m.safetensors: header: JSON nested deeper than 64 levels at byte 68");
}

TEST(SafetensorsFile, RefusesANameThatAppearsTwice) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                         2),
            "m.safetensors: header: key \"a\" appears twice in one object");
}

TEST(SafetensorsFile, RefusesAnEntryThatIsNotAnObject) {
  EXPECT_EQ(header_error(R"({"a":[1]})", 0), "m.safetensors: tensor \"a\" is not a JSON object");
}

TEST(SafetensorsFile, RefusesAnEntryWithoutType) {
  EXPECT_EQ(header_error(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1),
            "m.safetensors: tensor \"a\" has no dtype");
}

TEST(SafetensorsFile, RefusesAnUnknownType) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", 1),
            "m.safetensors: tensor \"a\" has unknown dtype \"F4\"");
}

TEST(SafetensorsFile, RefusesANegativeShape) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1),
            "m.safetensors: tensor \"a\" has no valid shape: expected a list of at most 8 "
            "non-negative integers");
}

TEST(SafetensorsFile, RefusesAFractionalShape) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1),
            "m.safetensors: tensor \"a\" has no valid shape: expected a list of at most 8 "
            "non-negative integers");
}

TEST(SafetensorsFile, RefusesAShapeWhoseSizeOverflows) {
  EXPECT_EQ(header_error(
                R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
            "m.safetensors: tensor \"a\" has shape [4294967296, 4294967296], too large to count "
            "its bytes");
}

TEST(SafetensorsFile, RefusesOffsetsThatRunBackwards) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1),
            "m.safetensors: tensor \"a\" has no valid data_offsets: expected [begin, end] with "
            "begin <= end");
}

TEST(SafetensorsFile, RefusesABytesCountThatTheShapeDoesNotNeed) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,10]}})", 10),
            "m.safetensors: tensor \"a\" has 10 bytes, but shape [2, 3] of BF16 needs 12");
}

TEST(SafetensorsFile, RefusesTruncatedData) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})", 11),
            "m.safetensors: tensor \"a\" ends at byte 12 of the data, but the file has 11: "
            "truncated, download it again");
}

TEST(SafetensorsFile, RefusesOffsetsNearTheEndOf64Bits) {
  EXPECT_EQ(
      header_error(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}})",
          1),
      "m.safetensors: tensor \"a\" ends at byte 18446744073709551615 of the data, but the file has "
      "1: truncated, "
      "download it again");
}

TEST(SafetensorsFile, RefusesOverlappingTensors) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                         R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                         6),
            "m.safetensors: tensor \"b\" starts at byte 2, overlapping a, which ends at 4");
}

TEST(SafetensorsFile, RefusesAGapBetweenTensors) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                         R"("b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})",
                         10),
            "m.safetensors: tensor \"b\" starts at byte 6, leaving a gap after a, which ends at 4");
}

TEST(SafetensorsFile, RefusesBytesThatBelongToNoTensor) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 9),
            "m.safetensors: 5 bytes after the last tensor belong to none");
}

TEST(ShardIndex, RefusesAShardOutsideTheDirectory) {
  const fixture::TempDirectory directory;
  directory.write("index.json", R"({"weight_map": {"a": "../../etc/passwd"}})");

  const auto index = read_shard_index(directory.path() / "index.json", "index.json");

  ASSERT_FALSE(index.has_value());
  EXPECT_EQ(index.error().message,
            "index.json: tensor \"a\" is said to be in \"../../etc/passwd\", expected the name of "
            "a file in this directory");
}

TEST(ShardIndex, RefusesAFileWithoutWeightMap) {
  const fixture::TempDirectory directory;
  directory.write("index.json", R"({"metadata": {}})");

  const auto index = read_shard_index(directory.path() / "index.json", "index.json");

  ASSERT_FALSE(index.has_value());
  EXPECT_EQ(index.error().message, "index.json: no object \"weight_map\" in it");
}

}  // namespace
}  // namespace troupe
