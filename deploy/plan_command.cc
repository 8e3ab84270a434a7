#include "deploy/commands.h"
#include "deploy/demo_model.h"
#include "deploy/engine.h"
#include "deploy/model_files.h"
#include "runtime/model/checkpoint.h"
#include "runtime/program/plans.h"
#include "runtime/program/program.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace troupe::deploy {
namespace {

namespace fs = std::filesystem;

bool has_weights(const fs::path& directory) {
  std::error_code code;
  for (fs::directory_iterator entry(directory, code), end; !code && entry != end;
       entry.increment(code)) {
    if (entry->path().extension() == ".safetensors") {
      return true;
    }
  }
  return false;
}

// The smallest compiled plan that holds the rows; `plans` rises.
const FusionPlan& plan_for(const std::vector<FusionPlan>& plans, std::uint32_t rows) {
  return *std::find_if(plans.begin(), plans.end() - 1, [rows](const FusionPlan& plan) {
    return plan.shape.rows >= rows;
  });
}

Status check_rows(const std::vector<FusionPlan>& plans, const PlanOptions& wanted) {
  if (plans.empty() || plans.back().shape.rows < wanted.rows) {
    return error(Kind::kInvalid,
                 "--rows " + std::to_string(wanted.rows) + ": a step of mode " + wanted.mode +
                     " has at most " + std::to_string(plans.empty() ? 0 : plans.back().shape.rows) +
                     " rows");
  }
  return {};
}

}  // namespace

Result<ExitCode> plan_command(const Options& options, World& world) {
  TROUPE_ASSIGN(const auto directory, model_directory(options.common.model));
  TROUPE_ASSIGN(const auto files, open_model_files(directory));
  TROUPE_ASSIGN(const auto device, make_device(options.common, world.clock));
  std::unique_ptr<Checkpoint> checkpoint;  // maps the files and reads their headers only
  if (has_weights(directory)) {
    TROUPE_ASSIGN(checkpoint, Checkpoint::open(directory, files.config));
  }
  const ParameterType type = [&checkpoint](std::string_view name) {
    const TensorView* tensor = checkpoint == nullptr ? nullptr : checkpoint->find(name);
    return tensor == nullptr ? DType::kBF16 : tensor->dtype;
  };
  const StageOptions stage = stage_options(files, options.common);
  TROUPE_ASSIGN(
      const auto plans,
      make_stage_plans(files.config,
                       {0, static_cast<std::uint32_t>(files.config.layers.size())},
                       make_catalog(device->kernels(), stage.activation),
                       type,
                       checkpoint == nullptr ? "no checkpoint" : checkpoint->header_digest(),
                       stage,
                       0));
  const auto& ladder = options.plan.mode == "rows" ? plans.rows : plans.decode;
  TROUPE_TRY(check_rows(ladder, options.plan));
  const FusionPlan& plan = plan_for(ladder, options.plan.rows);
  const std::uint32_t valid =
      stage.valid_tokens == 0 ? files.config.vocab_size : stage.valid_tokens;
  TROUPE_ASSIGN(
      const auto program,
      Program::compile(
          plans.circuit, plan, plans.weights, plans.states, plans.info.ledger.blocks, valid));
  TROUPE_TRY(world.output.write(plan.text(plans.circuit) + "\narithmetic digest  " +
                                plans.info.arithmetic_digest + "\nplan digest        " +
                                program->plan_digest() + "\n\n" + plans.info.ledger.text()));
  return ExitCode::kDone;
}

}  // namespace troupe::deploy
