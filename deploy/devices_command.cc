#include "deploy/commands.h"
#include "deploy/demo_model.h"
#include "deploy/engine.h"
#include "deploy/processor.h"
#include "deploy/report.h"
#include "kernels/ops.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"
#include "runtime/program/executable.h"
#include "runtime/program/ledger.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace troupe::deploy {
namespace {

using Json = nlohmann::ordered_json;

struct KernelSetReport {
  std::string name;
  bool available = false;
  bool fp32_activations = false;
  std::vector<std::string_view> lacking;
};

struct ModelReport {
  std::string model;
  std::string blocker;  // empty: this device runs it
};

struct DeviceReport {
  DeviceInfo device;
  Processor processor;
  std::vector<KernelSetReport> kernel_sets;
  std::vector<std::string_view> capabilities;
  ModelReport supports;
};

std::vector<KernelSetReport> report_kernel_sets(const Processor& processor) {
  std::vector<KernelSetReport> reports;
  for (const KernelSet* set : cpu_kernel_sets()) {
    reports.push_back({std::string(set->name), set->available(), set->fp32_activations, {}});
    if (!reports.back().available) {
      reports.back().lacking = missing_flags(set->name, processor);
    }
  }
  return reports;
}

// The smallest stage: what an executable can do does not depend on its sizes.
Result<std::vector<std::string_view>> report_capabilities(Device& device,
                                                          const ModelConfig& config,
                                                          Activation activation) {
  StageOptions options;
  options.activation = activation;
  options.max_rows = 1;
  options.max_segments = 1;
  options.max_sampled = 1;
  options.pages = 1;
  options.blocks = 1;
  TROUPE_ASSIGN(const auto stage, make_empty_stage(device, config, options));
  return enabled_names(capabilities(stage->executable()));
}

// The first thing that keeps the device from running the model.
Status find_blocker(const std::filesystem::path& directory, const DeviceInfo& device) {
  TROUPE_ASSIGN(const auto config, read_model_config(directory));
  TROUPE_ASSIGN(const auto checkpoint, Checkpoint::open(directory, config));
  if (checkpoint->file_bytes() > device.memory_bytes) {
    return error(Kind::kOverloaded,
                 "the weights have " + bytes_text(checkpoint->file_bytes()) +
                     " and the device may use " + bytes_text(device.memory_bytes));
  }
  return {};
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const auto word : words) {
    text += (text.empty() ? "" : ", ") + std::string(word);
  }
  return text;
}

std::string json_text(const DeviceReport& report) {
  Json sets = Json::array();
  for (const auto& set : report.kernel_sets) {
    sets.push_back({{"name", set.name},
                    {"available", set.available},
                    {"fp32_activations", set.fp32_activations},
                    {"lacking", set.lacking}});
  }
  Json supports = {{"model", report.supports.model}, {"runs", report.supports.blocker.empty()}};
  if (!report.supports.blocker.empty()) {
    supports["blocker"] = report.supports.blocker;
  }
  const Json device = {{"name", report.device.name},
                       {"processor", report.processor.name},
                       {"threads", report.device.threads},
                       {"memory_bytes", report.device.memory_bytes},
                       {"available_bytes", report.device.available_bytes},
                       {"kernel_sets", std::move(sets)},
                       {"kernel_set", report.device.kernel_set},
                       {"choice_reason", report.device.choice_reason},
                       {"capabilities", report.capabilities},
                       {"supports", std::move(supports)}};
  return Json{{"devices", Json::array({device})}}.dump(
             -1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::string table_text(const DeviceReport& report) {
  std::string text = report.device.name + "  " + report.processor.name + "\n" + "  threads       " +
                     std::to_string(report.device.threads) + "\n" + "  memory        " +
                     bytes_text(report.device.memory_bytes) + ", free at start " +
                     bytes_text(report.device.available_bytes) + "\n";
  for (const auto& set : report.kernel_sets) {
    text += "  kernels       " + set.name +
            (set.available         ? ""
             : set.lacking.empty() ? ": not on this system"
                                   : ": lacks " + joined(set.lacking)) +
            (set.name == report.device.kernel_set ? "  <- " + report.device.choice_reason : "") +
            "\n";
  }
  text += "  capabilities  " + joined(report.capabilities) + "\n";
  text += "  " + report.supports.model + ": " +
          (report.supports.blocker.empty() ? "runs" : report.supports.blocker) + "\n";
  return text;
}

}  // namespace

Result<ExitCode> devices_command(const Options& options, World& world) {
  TROUPE_ASSIGN(const auto demo, model_directory(""));
  TROUPE_ASSIGN(const auto config, read_model_config(demo));
  TROUPE_ASSIGN(const auto directory, model_directory(options.common.model));
  TROUPE_ASSIGN(const auto device, make_device(options.common, world.clock));
  DeviceReport report;
  report.device = device->info();
  report.processor = read_processor();
  report.kernel_sets = report_kernel_sets(report.processor);
  TROUPE_ASSIGN(report.capabilities,
                report_capabilities(*device, config, options.common.activation));
  report.supports.model = directory.lexically_normal().string();
  if (const auto blocker = find_blocker(directory, report.device); !blocker) {
    report.supports.blocker = blocker.error().message;
  }
  TROUPE_TRY(world.output.write(options.devices.json ? json_text(report) : table_text(report)));
  return ExitCode::kDone;
}

}  // namespace troupe::deploy
