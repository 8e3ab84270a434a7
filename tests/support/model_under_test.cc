#include "tests/support/model_under_test.h"

#include "kernels/ops.h"

#include <fstream>
#include <sstream>

namespace troupe::test {
namespace {

template <class T>
T must(Result<T> result) {
  if (!result) {
    check_failed("result", result.error().message, result.error().where);
  }
  return *std::move(result);
}

void must(const Status& status) {
  if (!status) {
    check_failed("status", status.error().message, status.error().where);
  }
}

}  // namespace

std::unique_ptr<ModelUnderTest> ModelUnderTest::open(const std::filesystem::path& directory,
                                                     const ModelOptions& options) {
  auto model = std::make_unique<ModelUnderTest>();
  std::ifstream file(directory / options.config_file);
  std::stringstream text;
  text << file.rdbuf();
  model->config_ = must(parse_model_config(text.str(), options.config_file));
  model->checkpoint_ = must(Checkpoint::open(directory, model->config_));
  model->device_ = must(make_cpu_device({.threads = options.threads,
                                         .kernel_set = options.kernel_set,
                                         .activation = options.activation,
                                         .run_inline = options.run_inline},
                                        model->clock_));
  StageOptions stage = options.stage;
  stage.activation = options.activation;
  model->stage_ =
      must(make_stage(*model->device_, model->config_, *model->checkpoint_, stage, options.load));
  model->pages_ = std::make_unique<PagePool>(model->stage_->info().ledger.pages, 1);
  model->blocks_ = std::make_unique<BlockPool>(model->stage_->info().ledger.blocks);
  return model;
}

StepResult ModelUnderTest::step(std::span<const Piece> pieces) {
  std::vector<std::int32_t> tokens;
  std::vector<PageRef> write_pages;
  std::vector<SegmentInput> segments;
  std::vector<SampledInput> sampled;
  std::vector<PageRef> replaced;
  std::uint32_t width = 1;
  for (const Piece& piece : pieces) {
    const auto end = static_cast<std::uint32_t>(piece.sequence->length) +
                     static_cast<std::uint32_t>(piece.tokens.size());
    while (piece.sequence->blocks.size() * kBlockTokens < end) {
      piece.sequence->blocks.push_back(must(blocks_->acquire()));
    }
    width = std::max(width, static_cast<std::uint32_t>(piece.sequence->blocks.size()));
  }
  std::vector<BlockRef> table(pieces.size() * width);
  for (std::uint32_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    Sequence& sequence = *piece.sequence;
    std::copy(sequence.blocks.begin(), sequence.blocks.end(), table.begin() + i * width);
    const auto first = static_cast<std::uint32_t>(tokens.size());
    const auto rows = static_cast<std::uint32_t>(piece.tokens.size());
    segments.push_back({.rows = rows,
                        .first_position = sequence.length,
                        .read_page = sequence.page,
                        .block_row = i});
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
    write_pages.resize(tokens.size(), PageRef{kNoPage, 0});
    write_pages.back() = must(pages_->acquire());
    for (std::uint32_t r = 0; r < rows && !piece.sample_none; ++r) {
      if (piece.sample_all || r + 1 == rows) {
        sampled.push_back({.row = first + r, .params = piece.params});
      }
    }
    if (sequence.page.index != kZeroPage) {
      replaced.push_back(sequence.page);
    }
    sequence.page = write_pages.back();
    sequence.length += static_cast<std::int32_t>(rows);
  }
  const auto freed_pages = pages_->take_freed();
  const auto freed_blocks = blocks_->take_freed();
  const StepOutputs outputs = must(executable().run_raw({.tokens = tokens,
                                                         .write_pages = write_pages,
                                                         .segments = segments,
                                                         .blocks = table,
                                                         .block_width = width,
                                                         .sampled = sampled,
                                                         .freed_pages = freed_pages,
                                                         .freed_blocks = freed_blocks}));
  for (const PageRef& page : replaced) {
    must(pages_->release(page));
  }
  StepResult result{.results = {outputs.results.begin(), outputs.results.end()}};
  for (std::size_t i = 0; i < sampled.size(); ++i) {
    const auto row = outputs.logits.subspan(i * outputs.vocab, outputs.vocab);
    result.logits.emplace_back(row.begin(), row.end());
  }
  return result;
}

void ModelUnderTest::end(Sequence& sequence) {
  if (sequence.page.index != kZeroPage) {
    must(pages_->release(sequence.page));
  }
  for (const BlockRef& block : sequence.blocks) {
    must(blocks_->release(block));
  }
  sequence = {};
}

std::vector<std::string> all_sets(Activation activation) {
  std::vector<std::string> names;
  for (const KernelSet* set : cpu_kernel_sets()) {
    if (activation == Activation::kBF16 || set->fp32_activations) {
      names.emplace_back(set->name);
    }
  }
  return names;
}

std::vector<std::string> available_sets(Activation activation) {
  std::vector<std::string> names;
  for (const std::string& name : all_sets(activation)) {
    if (find_cpu_kernel_set(name)->available()) {
      names.push_back(name);
    }
  }
  return names;
}

std::string data_directory() {
  return std::string(TROUPE_SOURCE_DIR) + "/tests/golden/data";
}

}  // namespace troupe::test
