// ServeRoutes: which path of the server means what: the OpenAI API, health, metrics, the page and
// its state; and on the admin listener drain, profile and the flight recorder. Any thread; nothing
// waits.
//
// SR-1: health tells the engine's state, not only that the process answers: an engine that is lost
//       or stalls with work to do is unhealthy; one that is idle or busy is not.
#pragma once

#include "deploy/serve_backend.h"
#include "deploy/serve_monitor.h"
#include "net/http.h"
#include "net/openai.h"

#include <functional>
#include <memory>

namespace troupe::deploy {

class ServeRoutes final {
 public:
  // All outlive the routes. `drain` is called by POST /admin/drain; it must not block.
  ServeRoutes(net::OpenAiApi& api, ServeMonitor& monitor, std::function<void()> drain);

  void answer(const std::shared_ptr<net::Exchange>& exchange);
  void answer_admin(const std::shared_ptr<net::Exchange>& exchange);

 private:
  net::OpenAiApi& api_;
  ServeMonitor& monitor_;
  std::function<void()> drain_;
};

}  // namespace troupe::deploy
