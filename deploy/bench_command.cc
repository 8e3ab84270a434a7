#include "deploy/bandwidth.h"
#include "deploy/bench_run.h"
#include "deploy/commands.h"
#include "deploy/demo_model.h"
#include "deploy/engine.h"
#include "deploy/profile.h"
#include "deploy/report.h"
#include "runtime/model/config.h"
#include "runtime/program/ledger.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

namespace troupe::deploy {
namespace {

using Json = nlohmann::ordered_json;

struct Measured {
  Figures prefill;  // tokens/s
  Figures decode;
  double bandwidth = 0;  // bytes/s
  std::uint64_t resident = 0;
  Profile profile;  // empty unless asked for
};

// Bytes of weights that were read a second while decoding, as a share of what the memory delivers.
// Weights that a cache holds can make it more than 1; keys, values and states are not counted.
double decode_fraction(const Loaded& loaded, const Measured& measured, std::uint32_t batch) {
  const double steps_a_second = measured.decode.median() / batch;
  return measured.bandwidth <= 0 ? 0
                                 : static_cast<double>(loaded.decode_weight_bytes) *
                                       steps_a_second / measured.bandwidth;
}

Json figures_json(const Figures& figures) {
  return {{"min", figures.min()}, {"median", figures.median()}, {"max", figures.max()}};
}

Json profile_json(const Profile& profile) {
  auto list = Json::array();
  for (const auto& [key, kind] : profile.kinds()) {
    list.push_back({{"mode", name(key.first)},
                    {"launch", key.second},
                    {"launches", kind.launches},
                    {"seconds", in_seconds(kind.time)},
                    {"bytes", kind.work.bytes},
                    {"multiplications", kind.work.multiplications}});
  }
  return list;
}

std::string json_text(const Options& options,
                      const std::string& model,
                      const Loaded& loaded,
                      const Measured& measured) {
  const auto& bench = options.bench;
  const auto& device = loaded.device->info();
  Json json = {{"model", model},
               {"kernel_set", device.kernel_set},
               {"activations", options.common.activation == Activation::kF32 ? "fp32" : "bf16"},
               {"numerics", "exact"},
               {"threads", device.threads},
               {"prompt_tokens", bench.prompt_tokens},
               {"output_tokens", bench.output_tokens},
               {"batch", bench.batch},
               {"repetitions", bench.repetitions}};
  if (!measured.prefill.empty()) {
    json["prefill_tokens_per_s"] = figures_json(measured.prefill);
  }
  if (!measured.decode.empty()) {
    json["decode_tokens_per_s"] = figures_json(measured.decode);
  }
  json["late_workers"] = loaded.device->stats().late_workers;
  json["load_s"] = loaded.load_s;
  json["resident_bytes"] = measured.resident;
  json["weight_bytes"] = loaded.stage->info().ledger.weight_bytes;
  json["roofline"] = {{"read_bytes_per_s", measured.bandwidth},
                      {"decode_weight_bytes", loaded.decode_weight_bytes}};
  if (!measured.decode.empty()) {
    json["roofline"]["decode_fraction"] = decode_fraction(loaded, measured, bench.batch);
  }
  if (bench.profile) {
    json["profile"] = profile_json(measured.profile);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string row(const std::string& what, const Figures& figures) {
  return figures.empty()
             ? ""
             : what + rate_text(figures.median(), 1) + " tokens/s (" + rate_text(figures.min(), 1) +
                   " - " + rate_text(figures.max(), 1) + ")\n";
}

std::string table_text(const Options& options,
                       const std::string& model,
                       const Loaded& loaded,
                       const Measured& measured) {
  const auto& bench = options.bench;
  const auto& device = loaded.device->info();
  std::string text = "model      " + model + ", loaded in " + rate_text(loaded.load_s, 1) +
                     " s, resident " + bytes_text(measured.resident) + "\n" + "kernels    " +
                     device.kernel_set + ", " + std::to_string(device.threads) + " threads\n";
  text += row("prefill    " + std::to_string(bench.prompt_tokens) + " tokens x " +
                  std::to_string(bench.batch) + ": ",
              measured.prefill);
  text += row("decode     " + std::to_string(bench.output_tokens) + " tokens x " +
                  std::to_string(bench.batch) + ": ",
              measured.decode);
  if (const auto late = loaded.device->stats().late_workers; late > 0) {
    text += "disturbed  workers were kept from their cores " + std::to_string(late) + " times\n";
  }
  text += "memory     " + bytes_text(static_cast<std::uint64_t>(measured.bandwidth)) + "/s read";
  if (!measured.decode.empty()) {
    text += "; decoding reads " + bytes_text(loaded.decode_weight_bytes) + " of weights a step, " +
            rate_text(100 * decode_fraction(loaded, measured, bench.batch), 1) + " % of that";
  }
  text += "\n";
  return bench.profile ? text + measured.profile.text(measured.bandwidth) : text;
}

// Opened before anything is measured, so that a wrong path costs no time.
Result<std::ofstream> open_trace(const std::string& path) {
  std::ofstream file;
  if (!path.empty()) {
    file.open(path, std::ios::binary);
    if (!file) {
      return error(Kind::kInvalid, "--trace " + path + " can't be opened for writing");
    }
  }
  return file;
}

Status write_trace(const std::string& path, std::ofstream& file, const Profile& profile) {
  file << profile.trace();
  if (!file.flush()) {
    return error(Kind::kInternal, "--trace " + path + " can't be written to the end");
  }
  return {};
}

Result<Measured> measure(const BenchOptions& bench,
                         Loaded& loaded,
                         const BenchShape& shape,
                         const Clock& clock) {
  Measured measured;
  BenchRun run(*loaded.stage, shape, clock);
  TROUPE_TRY(run.run());  // warms caches and makes the programs
  for (std::uint32_t i = 0; i < bench.repetitions; ++i) {
    TROUPE_ASSIGN(const auto seconds, run.run());
    if (shape.prompt_tokens > 0) {
      measured.prefill.add(static_cast<double>(shape.prompt_tokens) * shape.batch /
                           seconds.prefill);
    }
    if (shape.output_tokens > 0) {
      measured.decode.add(static_cast<double>(shape.output_tokens) * shape.batch / seconds.decode);
    }
  }
  if (bench.profile || !bench.trace.empty()) {
    loaded.stage->observe_launches(
        [&measured](const Stage::LaunchView& launch) { measured.profile.add(launch); });
    TROUPE_TRY(run.run());
    loaded.stage->observe_launches({});
  }
  measured.resident = resident_bytes();
  TROUPE_ASSIGN(measured.bandwidth, read_bandwidth(*loaded.device, clock));
  return measured;
}

Status check_context(const BenchOptions& bench, const ModelConfig& config) {
  const std::uint64_t tokens = std::uint64_t{bench.prompt_tokens} + bench.output_tokens;
  if (tokens > config.max_position_embeddings) {
    return error(Kind::kOverloaded,
                 "--prompt-tokens and --output-tokens make " + std::to_string(tokens) +
                     " tokens, and the model's context is " +
                     std::to_string(config.max_position_embeddings));
  }
  return {};
}

}  // namespace

Result<ExitCode> bench_command(const Options& options, World& world) {
  const auto& bench = options.bench;
  TROUPE_ASSIGN(const auto directory, model_directory(options.common.model));
  TROUPE_ASSIGN(const auto config, read_model_config(directory));
  TROUPE_TRY(check_context(bench, config));
  TROUPE_ASSIGN(auto trace, open_trace(bench.trace));
  const BenchShape shape{bench.prompt_tokens, bench.output_tokens, bench.batch, config.vocab_size};
  LoadRequest request;
  request.directory = directory;
  request.config = &config;
  request.batch = bench.batch;
  request.stage.activation = options.common.activation;
  request.stage.max_rows = std::max(request.stage.max_rows, bench.batch);
  request.stage.max_segments = bench.batch;
  request.stage.max_sampled = bench.batch;
  request.stage.pages = bench_pages(shape);
  request.stage.blocks = bench_blocks(shape);
  TROUPE_ASSIGN(auto loaded, load_model(options.common, request, world.clock));
  TROUPE_ASSIGN(const auto measured, measure(bench, loaded, shape, world.clock));
  const std::string model = directory.lexically_normal().string();
  TROUPE_TRY(world.output.write(bench.json ? json_text(options, model, loaded, measured)
                                           : table_text(options, model, loaded, measured)));
  // After the figures, which a full disk must not take away.
  if (!bench.trace.empty()) {
    TROUPE_TRY(write_trace(bench.trace, trace, measured.profile));
  }
  return ExitCode::kDone;
}

}  // namespace troupe::deploy
