// A model that answers: start_node() for every command, and Service, as `troupe run` needs it:
// files, node and session together, started and stopped in order. Main thread.
#pragma once

#include "actors/node.h"
#include "deploy/commands.h"
#include "deploy/model_files.h"
#include "deploy/report.h"
#include "deploy/session.h"
#include "runtime/base/error.h"

#include <chrono>
#include <memory>
#include <string>

namespace troupe::deploy {

inline constexpr Time kStopDeadline = std::chrono::seconds(10);  // of Node::stop()

// A node that serves a model, and what it was made of.
struct StartedNode {
  std::unique_ptr<Node> node;
  NodeOptions options;
  Setting setting;
};

// Loads the model and starts a node with of `wanted` what the stage allows, and a seed of its own.
// `files` and `clock` outlive the node.
[[nodiscard]] Result<StartedNode> start_node(const ModelFiles& files,
                                             const CommonOptions& options,
                                             NodeOptions wanted,
                                             const Clock& clock);

class Service final {
 public:
  // Loads the model. From here on signals are graceful. `files` and `world` outlive the service.
  [[nodiscard]] static Result<std::unique_ptr<Service>> start(const ModelFiles& files,
                                                              const CommonOptions& options,
                                                              World& world);
  ~Service();  // stops the node
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  [[nodiscard]] Session& session() { return *session_; }
  [[nodiscard]] const Setting& setting() const { return started_.setting; }
  [[nodiscard]] std::uint32_t max_context() const { return started_.setting.stage.max_context; }

 private:
  Service(StartedNode started, World& world);

  World& world_;
  StartedNode started_;
  std::unique_ptr<Session> session_;
};

// The node did nothing for too long: says so on standard error.
[[nodiscard]] ExitCode report_silence();

// Talks until the input ends. `files` has a chat template.
[[nodiscard]] Result<ExitCode> chat(const ModelFiles& files,
                                    const RunOptions& run,
                                    Service& service,
                                    World& world);

// Answers all of a file; results in its order.
[[nodiscard]] Result<ExitCode> answer_file(const ModelFiles& files,
                                           const std::vector<Question>& questions,
                                           const RunOptions& run,
                                           Service& service,
                                           World& world);

}  // namespace troupe::deploy
