// Service: a model that answers, as `troupe run` needs it: files, engine and session together,
// started and stopped in order. Main thread.
#pragma once

#include "deploy/commands.h"
#include "deploy/engine.h"
#include "deploy/model_files.h"
#include "deploy/report.h"
#include "deploy/session.h"
#include "runtime/base/error.h"

#include <chrono>
#include <memory>
#include <string>

namespace troupe::deploy {

inline constexpr Time kStopDeadline = std::chrono::seconds(10);

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
  [[nodiscard]] const Setting& setting() const { return setting_; }
  [[nodiscard]] std::uint32_t max_context() const { return setting_.stage.max_context; }

 private:
  Service(Engine engine, World& world);

  World& world_;
  Setting setting_;
  std::unique_ptr<Node> node_;
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
