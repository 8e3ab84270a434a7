// Packed weights in a file: the second start maps the bits of the first, and nothing that happened
// to the file, to the checkpoint or to a writer makes it give other bits.
#include "runtime/program/panel_file.h"

#include "runtime/base/sha256.h"
#include "tests/support/model_under_test.h"
#include "tests/support/temp_directory.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <fstream>
#include <future>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = std::size_t{4} << 20;
const std::string kHash(64, 'a');

std::vector<std::byte> some_arena(std::size_t bytes) {
  std::vector<std::byte> arena(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    arena[i] = static_cast<std::byte>(i * 2654435761U >> 7U);
  }
  return arena;
}

std::string message(const auto& result) {
  return result ? "no error" : result.error().message;
}

void flip_byte(const fs::path& file, std::uint64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(at));
  const auto byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(static_cast<std::streamoff>(at));
  stream.put(byte);
}

// ---- the file

class PanelFiles : public testing::Test {
 protected:
  Status write(std::span<const std::byte> arena, const std::string& hash = kHash) {
    return write_panel_file(path_, hash, arena, stop_);
  }
  // Why the file can't be used; "" when all of it is intact.
  std::string fault(std::size_t arena_bytes, const std::string& hash = kHash) {
    const PanelFile file(path_, hash, arena_bytes);
    if (file.fault() != PanelFile::Fault::kNone) {
      return file.reason();
    }
    auto memory = device_->map_file(file.fd(), file.arena_offset(), arena_bytes, "weights").value();
    for (std::size_t i = 0; i < file.chunks(); ++i) {
      if (!file.is_intact(i, memory->data())) {
        return "chunk " + std::to_string(i);
      }
    }
    return "";
  }

  TempDirectory directory_;
  fs::path path_ = directory_.path() / "x.panels";
  fs::path part_ = directory_.path() / "x.panels.part";
  std::atomic<bool> stop_ = false;
  SteadyClock clock_;
  std::unique_ptr<Device> device_ =
      make_cpu_device({.kernel_set = "scalar", .run_inline = true}, clock_).value();
};

TEST_F(PanelFiles, HoldTheArenaAtAnyLength) {
  for (const std::size_t bytes :
       {std::size_t{1}, kChunk - 1, kChunk, kChunk + 1, 3 * kChunk + 64}) {
    const auto arena = some_arena(bytes);
    ASSERT_EQ(message(write(arena)), "no error");
    EXPECT_EQ(fault(bytes), "") << bytes;
    const PanelFile file(path_, kHash, bytes);
    auto memory = device_->map_file(file.fd(), file.arena_offset(), bytes, "weights").value();
    EXPECT_TRUE(std::equal(arena.begin(), arena.end(), memory->data())) << bytes;
    EXPECT_FALSE(fs::exists(part_));
  }
}

TEST_F(PanelFiles, WhatIsWrittenToAMappedArenaStaysInTheProcess) {
  const auto arena = some_arena(100);
  ASSERT_TRUE(write(arena).has_value());
  const PanelFile file(path_, kHash, 100);
  auto memory = device_->map_file(file.fd(), file.arena_offset(), 100, "weights").value();
  memory->data()[3] ^= std::byte{1};
  EXPECT_EQ(fault(100), "");
}

TEST_F(PanelFiles, EveryDamagedByteIsFound) {
  const auto arena = some_arena(2 * kChunk + 100);
  ASSERT_TRUE(write(arena).has_value());
  const std::uint64_t size = fs::file_size(path_);
  const std::uint64_t begin = size - arena.size();
  const std::string header = "has a damaged header";
  const std::string table = "is cut short or has damaged digests";
  const std::vector<std::pair<std::uint64_t, std::string>> places = {{0, header},
                                                                     {20, header},
                                                                     {80, header},
                                                                     {111, header},
                                                                     {4096, table},
                                                                     {4096 + 23, table},
                                                                     {begin, "chunk 0"},
                                                                     {begin + kChunk, "chunk 1"},
                                                                     {size - 1, "chunk 2"}};
  for (const auto& [at, expected] : places) {
    flip_byte(path_, at);
    EXPECT_EQ(fault(arena.size()), expected) << at;
    flip_byte(path_, at);
    EXPECT_EQ(fault(arena.size()), "") << at;
  }
}

TEST_F(PanelFiles, EveryTruncationIsFound) {
  const auto arena = some_arena(kChunk + 100);
  ASSERT_TRUE(write(arena).has_value());
  for (std::uint64_t size = fs::file_size(path_); size > 0;) {
    size = size > kChunk ? size - 1 : size / 2;
    fs::resize_file(path_, size);
    EXPECT_NE(fault(arena.size()), "") << size;
    if (size > kChunk) {
      size = kChunk;
    }
  }
  fs::remove(path_);
  EXPECT_EQ(fault(arena.size()), "is not there");
}

TEST_F(PanelFiles, AnotherKeyOrLengthIsRefusedAndReplaced) {
  ASSERT_TRUE(write(some_arena(100)).has_value());
  EXPECT_EQ(fault(100, std::string(64, 'b')), "is of other files or another version");
  EXPECT_EQ(fault(101), "is cut short or has damaged digests");
  ASSERT_TRUE(write(some_arena(101), std::string(64, 'b')).has_value());
  EXPECT_EQ(fault(101, std::string(64, 'b')), "");
}

TEST_F(PanelFiles, OnlyOneProcessWritesAtATime) {
  const File other(::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(other.fd(), LOCK_EX), 0);
  const Status status = write(some_arena(100));
  EXPECT_EQ(message(status),
            "packed weights " + path_.string() + ": another process is writing it");
  EXPECT_EQ(status.error().kind, Kind::kOverloaded);
  EXPECT_TRUE(fs::exists(part_)) << "the other's file was taken away";
}

TEST_F(PanelFiles, AStoppedWriterLeavesNothing) {
  stop_ = true;
  EXPECT_EQ(write(some_arena(100)).error().kind, Kind::kCancelled);
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(PanelFiles, ADiskThatTakesNoMoreIsAnErrorAndLeavesNothing) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{std::uint64_t{3} << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write(some_arena(2 * kChunk));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_EQ(message(status),
            "packed weights " + path_.string() + ": could not be written: File too large");
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(PanelFiles, AFolderThatCannotBeWrittenIsAnError) {
  path_ = directory_.path() / "nowhere" / "x.panels";
  EXPECT_EQ(
      message(write(some_arena(100))),
      "packed weights " + path_.string() + ": could not be created: No such file or directory");
}

// A writer that is killed with -9 wherever it is leaves either the whole file or none under its
// name, and the next one is not in its way.
TEST_F(PanelFiles, AKilledWriterNeverLeavesHalfAFile) {
  const auto arena = some_arena(16 * kChunk);
  int unfinished = 0;
  for (std::uint64_t reached = 1; reached < arena.size(); reached += 2 * kChunk) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      (void)write(arena);
      ::_exit(0);
    }
    std::error_code none;
    const auto at_least = [&](const fs::path& p) {
      const auto size = fs::file_size(p, none);
      return !none && size >= reached;
    };
    int status = 0;
    while (!at_least(part_) && ::waitpid(child, &status, WNOHANG) == 0) {
    }
    ::kill(child, SIGKILL);
    (void)::waitpid(child, &status, 0);
    unfinished += fs::exists(part_) ? 1 : 0;
    EXPECT_EQ(fault(arena.size()), fs::exists(path_) ? "" : "is not there");
    if (fs::exists(path_)) {
      fs::remove(path_);
    }
  }
  EXPECT_GT(unfinished, 0) << "no writer was killed in time";
  ASSERT_EQ(message(write(arena)), "no error");
  EXPECT_EQ(fault(arena.size()), "");
  EXPECT_FALSE(fs::exists(part_));
}

// ---- a model

class PanelledModel : public testing::Test {
 protected:
  PanelledModel() {
    fs::copy(data_directory() + "/next-tiny", model_.path(), fs::copy_options::recursive);
  }
  std::unique_ptr<ModelUnderTest> open() {
    std::promise<Status> promise;
    written_ = promise.get_future();
    auto shared = std::make_shared<std::promise<Status>>(std::move(promise));
    return ModelUnderTest::open(
        model_.path(),
        {.activation = Activation::kBF16,
         .load = {.panel_directory = panels_.path(),
                  .panel_bytes_min = 0,
                  .on_panels_written = [shared](const Status& s) { shared->set_value(s); }}});
  }
  const PanelUse& use(ModelUnderTest& model) { return model.stage().info().panels; }
  void wait_written() { ASSERT_EQ(message(written_.get()), "no error"); }
  fs::path file() { return fs::directory_iterator(panels_.path())->path(); }

  static std::vector<std::vector<float>> logits(ModelUnderTest& model) {
    Sequence sequence;
    return model.step(Piece{.sequence = &sequence, .tokens = {1, 2, 3, 4, 5}, .sample_all = true})
        .logits;
  }

  TempDirectory model_;
  TempDirectory panels_;
  std::future<Status> written_;
};

TEST_F(PanelledModel, TheSecondStartMapsAndComputesTheSameBits) {
  auto first = open();
  EXPECT_FALSE(use(*first).mapped);
  EXPECT_EQ(use(*first).reason, "is not there");
  const auto expected = logits(*first);
  wait_written();
  auto second = open();
  EXPECT_TRUE(use(*second).mapped) << use(*second).reason;
  EXPECT_EQ(use(*second).file, file());
  EXPECT_EQ(logits(*second), expected);
  EXPECT_EQ(second->stage().info().plan_digest, first->stage().info().plan_digest);
}

TEST_F(PanelledModel, ADamagedFileIsPackedAgainAndReplaced) {
  auto first = open();
  wait_written();
  flip_byte(file(), fs::file_size(file()) - 1);
  auto second = open();
  EXPECT_FALSE(use(*second).mapped);
  EXPECT_TRUE(use(*second).damaged);
  EXPECT_EQ(use(*second).reason, "is damaged in part 1 of 1");
  EXPECT_EQ(logits(*second), logits(*first));
  wait_written();
  EXPECT_TRUE(use(*open()).mapped);
}

TEST_F(PanelledModel, AChangedCheckpointIsPackedAgainUnderTheSameName) {
  auto first = open();
  wait_written();
  const auto before = logits(*first);
  const fs::path name = file();
  first.reset();
  flip_byte(model_.path() / "model.safetensors",
            fs::file_size(model_.path() / "model.safetensors") - 1000);
  auto second = open();
  EXPECT_FALSE(use(*second).mapped);
  EXPECT_FALSE(use(*second).damaged);
  EXPECT_EQ(use(*second).reason, "is of other files or another version");
  wait_written();
  EXPECT_EQ(file(), name);
  auto third = open();
  EXPECT_TRUE(use(*third).mapped);
  EXPECT_EQ(logits(*third), logits(*second));
}

TEST_F(PanelledModel, AParameterSetOverAMappedOneCounts) {
  open();
  wait_written();
  auto mapped = open();
  ASSERT_TRUE(use(*mapped).mapped);
  auto plain = ModelUnderTest::open(model_.path(), {.activation = Activation::kBF16});
  const std::vector<float> values(64, 0.5F);
  for (auto* model : {mapped.get(), plain.get()}) {
    ASSERT_EQ(message(model->executable().set_param("final_norm", values)), "no error");
    ASSERT_EQ(message(model->executable().finalize_params()), "no error");
  }
  EXPECT_EQ(logits(*mapped), logits(*plain));
  EXPECT_NE(logits(*mapped), logits(*open())) << "the file was changed";
}

TEST_F(PanelledModel, WeightsSetByHandAreNeverWritten) {
  auto model = open();
  const std::vector<float> values(64, 0.5F);
  ASSERT_TRUE(model->executable().set_param("final_norm", values).has_value());
  const Status status = written_.get();
  if (status) {  // the writer was faster: then it wrote the checkpoint's
    auto plain = ModelUnderTest::open(model_.path(), {.activation = Activation::kBF16});
    EXPECT_EQ(logits(*open()), logits(*plain));
  } else {
    EXPECT_EQ(status.error().kind, Kind::kCancelled);
    EXPECT_TRUE(fs::is_empty(panels_.path()));
  }
}

TEST_F(PanelledModel, SmallWeightsAndNoFolderLeaveNoFile) {
  auto model = ModelUnderTest::open(
      model_.path(),
      {.activation = Activation::kBF16, .load = {.panel_directory = panels_.path()}});
  EXPECT_EQ(use(*model).file, "");
  model.reset();
  EXPECT_TRUE(fs::is_empty(panels_.path()));
}

// The key has no digest of the code that packs. This test stands in for it: when it fails, raise
// kPackingVersion in panel_file.cc and record the new digest.
TEST_F(PanelledModel, TheArenaIsWhatThisPackingVersionWrites) {
  open();
  wait_written();
  std::ifstream stream(file(), std::ios::binary);
  stream.seekg(2 << 20);
  const std::string arena((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_EQ(sha256_hex(arena), "eba30cfb59bb5642879394367665c69fc46fd1dc76784361bf1968e7095e1b21");
}

}  // namespace
}  // namespace troupe::test
