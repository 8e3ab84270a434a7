// The conformance suite of Executable and its optional interfaces. It runs on every executable
// there is: the CPU device with its own threads and the inline one. The end of the run names the
// pairs that were proven.
#include "runtime/program/executable.h"

#include "tests/support/model_under_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <set>

namespace troupe::test {
namespace {

class ExecutableConformance : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { model_ = open_model(available_sets(Activation::kBF16).back()); }
  static std::unique_ptr<ModelUnderTest> open_model(const std::string& kernel_set) {
    return ModelUnderTest::open(data_directory() + "/next-tiny",
                                {.activation = Activation::kBF16,
                                 .kernel_set = kernel_set,
                                 .threads = GetParam() ? 1U : 2U,
                                 .run_inline = GetParam()});
  }
  // One row at position 0 of a fresh sequence.
  StepInputs one_row(std::int32_t token, PageRef page, BlockRef block) {
    token_ = {token};
    write_ = {page};
    block_ = {block};
    return {.tokens = token_,
            .write_pages = write_,
            .segments = segment_,
            .blocks = block_,
            .block_width = 1,
            .sampled = sampled_};
  }
  Executable& executable() { return model_->executable(); }
  AsyncPipeline& pipeline() { return *executable().query<AsyncPipeline>(); }

  std::unique_ptr<ModelUnderTest> model_;
  std::vector<std::int32_t> token_;
  std::vector<PageRef> write_;
  std::vector<BlockRef> block_;
  std::vector<SegmentInput> segment_ = {{.rows = 1}};
  std::vector<SampledInput> sampled_ = {{.row = 0}};
};

std::string message(const auto& result) {
  return result ? "no error" : result.error().message;
}

// ---- core
// -----------------------------------------------------------------------------------------------------------------------

TEST_P(ExecutableConformance, CapabilitiesAreWhatTheQueriesAnswer) {
  const Capabilities c = capabilities(executable());
  EXPECT_EQ(c.async_pipeline, executable().query<AsyncPipeline>() != nullptr);
  EXPECT_EQ(c.active_extent, executable().query<ActiveExtent>() != nullptr);
  EXPECT_EQ(enabled_names(c),
            (std::vector<std::string_view>{"typed_io", "async_pipeline", "active_extent"}));
}

TEST_P(ExecutableConformance, RefusesUnknownAndMisshapenParameters) {
  const std::vector<float> values(64, 1.0F);
  EXPECT_EQ(message(executable().set_param("layers.9.nothing", values)),
            "this stage has no parameter layers.9.nothing");
  EXPECT_EQ(message(executable().set_param("final_norm", std::span(values).first(63))),
            "parameter final_norm of shape [1, 64] in F32 needs 256 bytes, 252 were given");
}

TEST_P(ExecutableConformance, RefusesStepsUntilParametersAreFinal) {
  auto empty = make_empty_stage(
                   model_->device(),
                   model_->config(),
                   {.max_rows = 4, .max_segments = 2, .max_sampled = 2, .pages = 3, .blocks = 4})
                   .value();
  EXPECT_EQ(message(empty->executable().run_raw(one_row(1, {1, 1}, {0, 1}))),
            "a step was committed before finalize_params()");
  const Status status = empty->executable().finalize_params();
  ASSERT_FALSE(status.has_value());
  EXPECT_TRUE(status.error().message.starts_with("parameter embed is missing ("))
      << status.error().message;
}

TEST_P(ExecutableConformance, ParametersSetOneByOneGiveTheSameModel) {
  const StageOptions options{.activation = Activation::kBF16,
                             .max_rows = 4,
                             .max_segments = 2,
                             .max_sampled = 2,
                             .pages = 3,
                             .blocks = 4};
  // Parameters that are set stay fp32, those of the checkpoint are bf16: only the fp32 kernel sets
  // promise the same sums for both.
  model_ = open_model(available_sets(Activation::kF32).back());
  auto checkpoint = Checkpoint::open(data_directory() + "/next-tiny", model_->config()).value();
  auto empty = make_empty_stage(model_->device(), model_->config(), options).value();
  for (const TensorView& t : checkpoint->tensors()) {
    if (t.name.starts_with("mtp.")) {
      continue;
    }
    std::vector<float> values(std::size_t{t.rows} * t.columns);
    for (std::uint32_t r = 0; r < t.rows; ++r) {
      for (std::uint32_t c = 0; c < t.columns; ++c) {
        values[std::size_t{r} * t.columns + c] =
            load_as_f32(t.data, t.dtype, std::size_t{t.stored_row(r)} * t.columns + c);
      }
    }
    ASSERT_EQ(message(empty->executable().set_param(t.name, values)), "no error");
  }
  ASSERT_EQ(message(empty->executable().finalize_params()), "no error");

  const StepOutputs a = empty->executable().run_raw(one_row(7, {1, 1}, {0, 1})).value();
  const std::vector<float> got(a.logits.begin(), a.logits.end());
  const StepOutputs b = executable().run_raw(one_row(7, {1, 1}, {0, 1})).value();

  EXPECT_EQ(std::memcmp(got.data(), b.logits.data(), got.size() * sizeof(float)), 0);
}

TEST_P(ExecutableConformance, RefusesWrongStepsAndChangesNothing) {
  const auto refused = [&](const StepInputs& inputs) {
    return message(executable().run_raw(inputs));
  };
  EXPECT_EQ(refused(one_row(256, {1, 1}, {0, 1})), "token of row 0 is 256: ids are 0 to 255");
  EXPECT_EQ(refused(one_row(1, {0, 1}, {0, 1})),
            "row 0 would write page 0, which is the zero page");
  EXPECT_EQ(refused(one_row(1, {71, 1}, {0, 1})),
            "write page of 0 is 71, but the stage has 71 pages");
  EXPECT_EQ(refused(one_row(1, {1, 1}, {160, 1})),
            "segment 0 names KV block 160, but the stage has 160");
  segment_ = {{.rows = 1, .first_position = 64}};
  EXPECT_EQ(refused(one_row(1, {1, 1}, {0, 1})),
            "segment 0 needs 2 KV blocks in row 0 of a block table of 1 x 1");
  segment_ = {{.rows = 2}};
  EXPECT_EQ(refused(one_row(1, {1, 1}, {0, 1})),
            "segments up to 0 have more rows than the 1 tokens");
  segment_ = {{.rows = 1}};
  sampled_ = {{.row = 1}};
  EXPECT_EQ(refused(one_row(1, {1, 1}, {0, 1})),
            "sampled row 1: sampled rows ascend and lie below 1");
  sampled_ = {{.row = 0}};
  EXPECT_EQ(refused(one_row(1, {1, 1}, {0, 1})), "no error");
}

TEST_P(ExecutableConformance, RefusesStaleGenerations) {
  ASSERT_EQ(message(executable().run_raw(one_row(1, {2, 5}, {3, 4}))), "no error");
  EXPECT_EQ(message(executable().run_raw(one_row(1, {2, 4}, {3, 4}))),
            "write page of 0: page 2 generation 4 is stale, the device has seen generation 5");
  EXPECT_EQ(message(executable().run_raw(one_row(1, {2, 6}, {3, 3}))),
            "segment 0: KV block 3 generation 3 is stale, the device has seen generation 4");
}

TEST_P(ExecutableConformance, RefusesTwoWritersOfOnePageOrBlock) {
  const std::vector<std::int32_t> tokens = {1, 2};
  const std::vector<SegmentInput> segments = {{.rows = 1, .block_row = 0},
                                              {.rows = 1, .block_row = 1}};
  const std::vector<PageRef> same = {{1, 1}, {1, 1}};
  const std::vector<PageRef> other = {{1, 1}, {2, 1}};
  const std::vector<BlockRef> one_block = {{0, 1}, {0, 1}};
  const std::vector<BlockRef> two_blocks = {{0, 1}, {1, 1}};
  EXPECT_EQ(message(executable().run_raw({.tokens = tokens,
                                          .write_pages = same,
                                          .segments = segments,
                                          .blocks = two_blocks,
                                          .block_width = 1})),
            "row 1 would write page 1, which another row of this step writes");
  EXPECT_EQ(message(executable().run_raw({.tokens = tokens,
                                          .write_pages = other,
                                          .segments = segments,
                                          .blocks = one_block,
                                          .block_width = 1})),
            "segment 1 would write KV block 0, which another segment of this step writes");
}

// ---- tensors by name, slot and dtype
// -----------------------------------------------------------------------------------------------

template <class T>
NamedTensor tensor(std::string_view name,
                   DType dtype,
                   std::vector<std::uint32_t> shape,
                   const std::vector<T>& values) {
  return {.name = name,
          .dtype = dtype,
          .shape = std::move(shape),
          .bytes = std::as_bytes(std::span(values))};
}

struct NamedStep {
  std::vector<std::int32_t> tokens = {5, 6, 7};
  std::vector<std::int32_t> segments = {3, 0, 0};
  std::vector<std::int32_t> read = {0, 0};
  std::vector<std::int32_t> write = {-1, 0, -1, 0, 4, 1};
  std::vector<std::int32_t> blocks = {9, 1};
  std::vector<std::int32_t> sampled = {2};
  [[nodiscard]] std::vector<NamedTensor> inputs() const {
    return {tensor("tokens", DType::kI32, {3}, tokens),
            tensor("segments", DType::kI32, {1, 3}, segments),
            tensor("read_pages", DType::kI32, {1, 2}, read),
            tensor("write_pages", DType::kI32, {3, 2}, write),
            tensor("blocks", DType::kI32, {1, 1, 2}, blocks),
            tensor("sampled_rows", DType::kI32, {1}, sampled)};
  }
};

TEST_P(ExecutableConformance, NamesSlotsAndTypesGiveTheSameAnswer) {
  const NamedStep step;
  const auto by_name = executable().run(step.inputs()).value();
  const auto by_slot = executable().run_slots(step.inputs()).value();
  std::vector<std::int64_t> wide = {5, 6, 7};
  auto typed_inputs = step.inputs();
  typed_inputs[0] = tensor("tokens", DType::kI64, {3}, wide);
  const std::vector<TensorSpec> specs = {{"logits", DType::kBF16}, {"tokens", DType::kI64}};
  const auto typed = executable().run_typed(typed_inputs, specs).value();

  ASSERT_EQ(by_name.size(), 2U);
  EXPECT_EQ(by_name[0].bytes, by_slot[0].bytes);
  EXPECT_EQ(by_name[1].bytes, by_slot[1].bytes);
  ASSERT_EQ(typed[0].bytes.size() * 2, by_name[1].bytes.size());
  float f = 0;
  bf16 b = 0;
  std::memcpy(&f, by_name[1].bytes.data() + 40, 4);
  std::memcpy(&b, typed[0].bytes.data() + 20, 2);
  EXPECT_EQ(f32_to_bf16(f), b);
  std::int32_t id = 0;
  std::int64_t wide_id = 0;
  std::memcpy(&id, by_name[0].bytes.data(), 4);
  std::memcpy(&wide_id, typed[1].bytes.data(), 8);
  EXPECT_EQ(id, wide_id);
}

TEST_P(ExecutableConformance, RefusesUnknownMissingAndMistypedTensors) {
  const NamedStep step;
  auto inputs = step.inputs();
  inputs[0].name = "tokns";
  EXPECT_EQ(message(executable().run(inputs)), "a step has no input named tokns");
  inputs = step.inputs();
  inputs.pop_back();
  EXPECT_EQ(message(executable().run(inputs)), "input sampled_rows is missing");
  inputs = step.inputs();
  inputs[0].dtype = DType::kF32;
  EXPECT_EQ(message(executable().run(inputs)), "input tokens is F32, expected I32");
  inputs = step.inputs();
  inputs[3].shape = {3};
  EXPECT_EQ(message(executable().run(inputs)), "input write_pages has shape [3], expected [n, 2]");
  inputs = step.inputs();
  inputs[0].shape = {4};
  EXPECT_EQ(message(executable().run(inputs)),
            "input tokens of shape [4] needs 16 bytes, 12 were given");
  inputs = step.inputs();
  inputs.push_back(inputs[0]);
  EXPECT_EQ(message(executable().run(inputs)), "input tokens was given twice");
  const std::vector<TensorSpec> specs = {{"hidden", DType::kF32}};
  EXPECT_EQ(message(executable().run_typed(step.inputs(), specs)),
            "a step has no output named hidden");
}

// ---- AsyncPipeline
// -----------------------------------------------------------------------------------------------------------------

TEST_P(ExecutableConformance, UnwaitedCommitsKeepTheirOwnInputsAndOutputs) {
  ASSERT_EQ(pipeline().depth(), 2U);
  const StepOutputs alone_a = executable().run_raw(one_row(3, {1, 1}, {0, 1})).value();
  const std::vector<float> want_a(alone_a.logits.begin(), alone_a.logits.end());
  const StepOutputs alone_b = executable().run_raw(one_row(200, {2, 1}, {1, 1})).value();
  const std::vector<float> want_b(alone_b.logits.begin(), alone_b.logits.end());
  ASSERT_NE(want_a, want_b);
  ASSERT_EQ(message(executable().run_raw(one_row(200, {2, 9999}, {1, 1}))),
            "no error");  // keeps a context until the next run_raw
  auto fresh = ModelUnderTest::open(data_directory() + "/next-tiny",
                                    {.activation = Activation::kBF16,
                                     .kernel_set = available_sets(Activation::kBF16).back(),
                                     .threads = GetParam() ? 1U : 2U,
                                     .run_inline = GetParam()});
  AsyncPipeline& p = *fresh->executable().query<AsyncPipeline>();

  const TicketId a = p.commit_no_wait(one_row(3, {1, 1}, {0, 1})).value();
  const TicketId b = p.commit_no_wait(one_row(200, {2, 1}, {1, 1})).value();
  const auto third = p.commit_no_wait(one_row(4, {3, 1}, {2, 1}));
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().kind, Kind::kOverloaded);
  EXPECT_EQ(third.error().message, "all 2 contexts hold un-released tickets; release one first");
  ASSERT_TRUE(p.sync_pending(std::chrono::seconds(60)).has_value());

  EXPECT_EQ(std::memcmp(p.outputs(a).value().logits.data(), want_a.data(), want_a.size() * 4), 0);
  EXPECT_EQ(std::memcmp(p.outputs(b).value().logits.data(), want_b.data(), want_b.size() * 4), 0);
  ASSERT_TRUE(p.release(a).has_value());
  EXPECT_EQ(message(p.outputs(a)), "ticket 1 is unknown or released");
  EXPECT_EQ(message(p.release(a)), "ticket 1 is unknown or released");
  EXPECT_TRUE(p.commit_no_wait(one_row(4, {3, 1}, {2, 1})).has_value());
  ASSERT_TRUE(p.sync_pending(std::chrono::seconds(60)).has_value());
}

TEST_P(ExecutableConformance, CompletionIsReportedOncePerTicketInOrder) {
  std::mutex mutex;
  std::vector<std::uint64_t> done;
  pipeline().set_completion([&](const TicketDone& ticket) {
    const std::scoped_lock lock(mutex);
    EXPECT_TRUE(ticket.status.has_value());
    done.push_back(ticket.ticket.value);
  });
  std::vector<std::uint64_t> committed;
  for (std::uint32_t i = 0; i < 20; ++i) {
    const TicketId ticket =
        pipeline()
            .commit_no_wait(
                one_row(static_cast<std::int32_t>(i), {1 + i % 2, i + 1}, {i % 2, i + 1}))
            .value();
    committed.push_back(ticket.value);
    if (i % 2 == 1) {
      ASSERT_TRUE(pipeline().sync_pending(std::chrono::seconds(60)).has_value());
      ASSERT_TRUE(pipeline().release(TicketId{ticket.value - 1}).has_value());
      ASSERT_TRUE(pipeline().release(ticket).has_value());
    }
  }
  const std::scoped_lock lock(mutex);
  EXPECT_EQ(done, committed);
}

TEST_P(ExecutableConformance, AStepMayUseTokensThatAreStillOnTheDevice) {
  // The greedy token of one ticket is the next ticket's input before anybody has read it.
  Sequence sequence;
  const StepResult first = model_->step({.sequence = &sequence, .tokens = {9, 8, 7}});
  const StepResult second =
      model_->step({.sequence = &sequence, .tokens = {first.results[0].token}});
  auto fresh = ModelUnderTest::open(data_directory() + "/next-tiny",
                                    {.activation = Activation::kBF16,
                                     .kernel_set = available_sets(Activation::kBF16).back(),
                                     .threads = GetParam() ? 1U : 2U,
                                     .run_inline = GetParam()});
  AsyncPipeline& p = *fresh->executable().query<AsyncPipeline>();
  const std::vector<std::int32_t> prompt = {9, 8, 7};
  const std::vector<PageRef> prompt_pages = {{kNoPage, 0}, {kNoPage, 0}, {1, 1}};
  const std::vector<SegmentInput> prompt_segment = {{.rows = 3}};
  const std::vector<SampledInput> last = {{.row = 2}};
  const std::vector<BlockRef> block = {{0, 1}};

  const TicketId a = p.commit_no_wait({.tokens = prompt,
                                       .write_pages = prompt_pages,
                                       .segments = prompt_segment,
                                       .blocks = block,
                                       .block_width = 1,
                                       .sampled = last})
                         .value();
  segment_ = {{.rows = 1, .first_position = 3, .read_page = {1, 1}}};
  StepInputs run_ahead = one_row(~0, {2, 1}, {0, 1});
  run_ahead.source = a;
  const TicketId b = p.commit_no_wait(run_ahead).value();
  ASSERT_TRUE(p.sync_pending(std::chrono::seconds(60)).has_value());

  EXPECT_EQ(p.outputs(b).value().results[0].token, second.results[0].token);
  EXPECT_EQ(
      std::memcmp(
          p.outputs(b).value().logits.data(), second.logits[0].data(), second.logits[0].size() * 4),
      0);
}

TEST_P(ExecutableConformance, PipelinedRunsHaveEachTheirOwnResultAndError) {
  std::vector<std::vector<std::int32_t>> tokens = {{1}, {999}, {3}};
  std::vector<std::vector<PageRef>> pages = {{{1, 1}}, {{2, 1}}, {{3, 1}}};
  std::vector<std::vector<BlockRef>> blocks = {{{0, 1}}, {{1, 1}}, {{2, 1}}};
  std::vector<StepInputs> inputs;
  for (std::size_t i = 0; i < 3; ++i) {
    inputs.push_back({.tokens = tokens[i],
                      .write_pages = pages[i],
                      .segments = segment_,
                      .blocks = blocks[i],
                      .block_width = 1,
                      .sampled = sampled_});
  }

  const auto results = pipeline().run_pipelined(inputs);

  EXPECT_TRUE(results[0].status.has_value());
  EXPECT_EQ(message(results[1].status), "token of row 0 is 999: ids are 0 to 255");
  EXPECT_TRUE(results[2].status.has_value());
  EXPECT_EQ(results[2].logits.size(), 256U);
  EXPECT_NE(results[0].logits, results[2].logits);
}

// ---- ActiveExtent, RngControl, StatePages
// --------------------------------------------------------------------------------------------

TEST_P(ExecutableConformance, ActiveExtentTellsHowManyRowsWereComputed) {
  auto* extent = executable().query<ActiveExtent>();
  ASSERT_NE(extent, nullptr);
  Sequence sequence;
  static_cast<void>(
      model_->step({.sequence = &sequence, .tokens = std::vector<std::int32_t>(21, 4)}));
  EXPECT_EQ(extent->last_extent().asked, 21U);
  EXPECT_EQ(extent->last_extent().compiled, 32U);
  EXPECT_EQ(extent->last_extent().honoured, 21U);
}

TEST_P(ExecutableConformance, RngControlIsTheKeyOfRowsThatHaveNone) {
  auto* rng = executable().query<RngControl>();
  ASSERT_NE(rng, nullptr);
  const auto draw = [&](std::uint64_t device_key, std::uint64_t row_key) {
    rng->set_rng(device_key);
    sampled_[0].params = {.temperature = 5, .key = row_key};
    return executable().run_raw(one_row(3, {1, 1}, {0, 1})).value().results[0].token;
  };
  std::set<std::int32_t> seen;
  for (std::uint64_t key = 1; key < 12; ++key) {
    const auto by_device = draw(key, 0);
    EXPECT_EQ(rng->rng(), key);
    EXPECT_EQ(by_device, draw(99, key));
    seen.insert(by_device);
  }
  EXPECT_GT(seen.size(), 3U);
}

TEST_P(ExecutableConformance, PagesSurviveTheTripThroughTheirWireForm) {
  auto* pages = executable().query<StatePages>();
  ASSERT_NE(pages, nullptr);
  Sequence sequence;
  static_cast<void>(model_->step({.sequence = &sequence, .tokens = {1, 2, 3, 4, 5}}));
  const PageRef original = sequence.page;
  const auto state = pages->read_page(original).value();
  const PageRef copy = model_->pages().acquire().value();

  ASSERT_TRUE(pages->write_page(copy, state).has_value());

  const auto again = pages->read_page(copy).value();
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].state, again[i].state);
    EXPECT_EQ(state[i].window, again[i].window);
  }
  EXPECT_EQ(message(pages->write_page({0, 0}, state)),
            "page 0 is the zero page and is never written");
  EXPECT_EQ(message(pages->read_page({99, 0})), "page 99 does not exist: the stage has 71");
  Sequence from_copy = sequence;
  from_copy.page = copy;
  const StepResult a = model_->step({.sequence = &from_copy, .tokens = {6}});
  Sequence from_original{.page = original, .blocks = sequence.blocks, .length = 5};
  const StepResult b = model_->step({.sequence = &from_original, .tokens = {6}});
  EXPECT_EQ(a.logits, b.logits);
}

TEST_P(ExecutableConformance, ACommittedPageIsNotTouchedByLaterSteps) {
  auto* pages = executable().query<StatePages>();
  Sequence sequence;
  static_cast<void>(model_->step({.sequence = &sequence, .tokens = {1, 2, 3}}));
  ASSERT_TRUE(model_->pages().share(sequence.page).has_value());  // a snapshot
  const PageRef snapshot = sequence.page;
  const auto before = pages->read_page(snapshot).value();
  for (int i = 0; i < 5; ++i) {
    static_cast<void>(model_->step({.sequence = &sequence, .tokens = {7}}));
  }
  const auto after = pages->read_page(snapshot).value();
  EXPECT_EQ(before[0].state, after[0].state);
  EXPECT_EQ(before[0].window, after[0].window);
}

#ifdef TROUPE_CHECKED
TEST_P(ExecutableConformance, FreedPagesArePoisonedInCheckedBuilds) {
  auto* pages = executable().query<StatePages>();
  Sequence sequence;
  static_cast<void>(model_->step({.sequence = &sequence, .tokens = {1}}));
  static_cast<void>(model_->step({.sequence = &sequence, .tokens = {2}}));  // frees the first page
  const PageRef freed = model_->pages().acquire().value();  // so that no step writes to it

  static_cast<void>(model_->step({.sequence = &sequence, .tokens = {3}}));  // tells the device

  EXPECT_TRUE(std::isnan(pages->read_page(freed).value()[0].state[0]));
}
#endif

INSTANTIATE_TEST_SUITE_P(Devices,
                         ExecutableConformance,
                         testing::Values(true, false),
                         [](const auto& instance) {
                           return instance.param ? "cpu_inline" : "cpu_threads";
                         });

}  // namespace
}  // namespace troupe::test
