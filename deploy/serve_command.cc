// `troupe serve`: loads the model, listens, and serves until a signal, a drain or the loss of the
// engine.
#include "deploy/commands.h"
#include "deploy/demo_model.h"
#include "deploy/model_files.h"
#include "deploy/report.h"
#include "deploy/serve_backend.h"
#include "deploy/serve_limits.h"
#include "deploy/serve_monitor.h"
#include "deploy/serve_openapi.h"
#include "deploy/serve_routes.h"
#include "deploy/service.h"
#include "net/http.h"
#include "net/openai.h"
#include "runtime/base/file.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace troupe::deploy {
namespace {

constexpr Time kWatchPeriod = std::chrono::seconds(1);
constexpr Time kAnswerPatience = std::chrono::seconds(5);  // for answers that are being sent
constexpr std::uint32_t kHttpThreads = 2;
constexpr std::uint32_t kAdminConnections = 16;
constexpr std::size_t kKeyFileBytes = 1U << 20U;

// Wakes the main thread from any other.
class Bell final {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Bell>> make() {
    const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
      return error(Kind::kInternal, "eventfd failed: too many open files?");
    }
    return std::unique_ptr<Bell>(new Bell(fd));
  }
  void ring() const {
    const std::uint64_t one = 1;
    // It can only fail when the count is at its limit, and then the bell rings anyway.
    [[maybe_unused]] const auto written = ::write(file_.fd(), &one, sizeof one);
  }
  [[nodiscard]] int fd() const { return file_.fd(); }

 private:
  explicit Bell(int fd) : file_(fd) {}
  File file_;
};

Result<std::vector<std::string>> read_keys(const std::string& path) {
  std::vector<std::string> keys;
  if (path.empty()) {
    return keys;
  }
  std::ifstream file(path);
  std::size_t bytes = 0;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
      line.pop_back();
    }
    bytes += line.size();
    if (bytes > kKeyFileBytes) {
      return error(Kind::kInvalid, "--api-key-file " + path + ": more than 1 MiB of keys");
    }
    if (!line.empty() && line.front() != '#') {
      keys.push_back(std::move(line));
    }
  }
  if (keys.empty()) {
    return error(Kind::kInvalid,
                 "--api-key-file " + path +
                     ": cannot be read or has no key in it; one key a line is expected");
  }
  return keys;
}

std::string name_of(const ModelFiles& files, const ServeOptions& serve) {
  return serve.model_name.empty() ? files.directory.lexically_normal().filename().string()
                                  : serve.model_name;
}

std::string address(const ListenAddress& listen, std::uint16_t port) {
  const bool v6 = listen.host.find(':') != std::string::npos;
  return (v6 ? "[" + listen.host + "]" : listen.host) + ":" + std::to_string(port);
}

// Everything between a loaded model and its clients, taken down in the order of their need.
class Server final {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Server>> start(const ModelFiles& files,
                                                             const Options& options,
                                                             World& world) {
    const ServeOptions& serve = options.serve;
    TROUPE_ASSIGN(auto keys, read_keys(serve.api_key_file));
    std::unique_ptr<Server> server(new Server(serve, world));
    TROUPE_ASSIGN(server->bell_, Bell::make());
    NodeOptions wanted;
    wanted.queue_max = serve.queue_max;
    wanted.sequences_max = serve.sequences_max;
    TROUPE_ASSIGN(server->started_, start_node(files, options.common, wanted, world.clock));
    TROUPE_TRY(server->open(files, std::move(keys)));
    return server;
  }
  ~Server() {
    if (started_.node != nullptr) {
      close(Time(0));
    }
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Result<ExitCode> serve();

 private:
  Server(const ServeOptions& options, World& world) : options_(options), world_(world) {}

  Status open(const ModelFiles& files, std::vector<std::string> keys);
  Status listen();
  void close(Time patience);

  const ServeOptions& options_;
  World& world_;
  std::unique_ptr<Bell> bell_;
  StartedNode started_;
  std::unique_ptr<NodeBackend> backend_;
  std::unique_ptr<ServeMonitor> monitor_;
  std::unique_ptr<net::OpenAiApi> api_;
  std::unique_ptr<ServeRoutes> routes_;
  std::unique_ptr<net::HttpServer> http_;
  std::unique_ptr<net::HttpServer> admin_;
};

Status Server::open(const ModelFiles& files, std::vector<std::string> keys) {
  const NodeOptions& node = started_.options;
  const StageInfo& stage = started_.setting.stage;
  if (stage.max_context < files.config.max_position_embeddings) {
    spdlog::warn(
        "the memory holds {} KV blocks, {} tokens, of the model's context of {}: longer requests "
        "are refused",
        stage.ledger.blocks,
        stage.max_context,
        files.config.max_position_embeddings);
  }
  const std::string name = name_of(files, options_);
  backend_ = std::make_unique<NodeBackend>(files,
                                           *started_.node,
                                           world_.clock,
                                           stage,
                                           name,
                                           static_cast<std::int64_t>(std::time(nullptr)));
  monitor_ = std::make_unique<ServeMonitor>(*started_.node,
                                            world_.clock,
                                            started_.setting,
                                            MonitorOptions{.model = name,
                                                           .version = TROUPE_VERSION,
                                                           .queue_max = node.queue_max,
                                                           .sequences_max = node.sequences_max,
                                                           .stall_after = node.step_deadline});
  net::ApiOptions api;
  api.more_paths = observing_paths(!keys.empty());
  api.api_keys = std::move(keys);
  api.on_outcome = [monitor = monitor_.get()](const net::ApiOutcome& outcome) {
    monitor->note(outcome);
  };
  api_ = net::OpenAiApi::make(*backend_, world_.clock, entropy_seed(), std::move(api));
  routes_ = std::make_unique<ServeRoutes>(*api_, *monitor_, [bell = bell_.get()] { bell->ring(); });
  return listen();
}

Status Server::listen() {
  net::HttpOptions http;
  http.host = options_.listen.host;
  http.port = options_.listen.port;
  http.threads = kHttpThreads;
  TROUPE_ASSIGN(const auto share, make_room_for(options_.connections_max));
  http.limits.connections = share.connections;
  http.limits.refused = share.refused;
  http.tls_certificate_file = options_.tls_certificate_file;
  http.tls_key_file = options_.tls_key_file;
  if (options_.admin) {
    net::HttpOptions admin;
    admin.host = options_.admin->host;
    admin.port = options_.admin->port;
    admin.limits.connections = kAdminConnections;
    admin.limits.refused = kAdminConnections;
    TROUPE_ASSIGN(admin_, net::HttpServer::start(admin, [routes = routes_.get()](auto exchange) {
                    routes->answer_admin(exchange);
                  }));
    spdlog::info("admin listener on http://{}", address(*options_.admin, admin_->port()));
  }
  TROUPE_ASSIGN(http_, net::HttpServer::start(http, [routes = routes_.get()](auto exchange) {
                  routes->answer(exchange);
                }));
  monitor_->set_http([server = http_.get()] { return server->counts(); });
  return {};
}

Result<ExitCode> Server::serve() {
  world_.signals.set_graceful(true);
  spdlog::info("serving {} with kernels {} ({}), {} threads, loaded in {:.2f} s",
               backend_->card().id,
               started_.setting.device.kernel_set,
               started_.setting.device.choice_reason,
               started_.setting.device.threads,
               started_.setting.load_s);
  // Scripts wait for this line, whatever the log level.
  const std::string scheme = options_.tls_certificate_file.empty() ? "http" : "https";
  const std::string line =
      "listening on " + scheme + "://" + address(options_.listen, http_->port()) + "\n";
  std::fputs(line.c_str(), stderr);
  for (;;) {
    pollfd wanted[] = {{world_.signals.fd(), POLLIN, 0}, {bell_->fd(), POLLIN, 0}};
    const auto period = std::chrono::duration_cast<std::chrono::milliseconds>(kWatchPeriod);
    const int ready = ::poll(wanted, 2, static_cast<int>(period.count()));
    if (ready > 0) {
      break;
    }
    if (ready < 0 && errno != EINTR) {
      return error(Kind::kInternal, "poll failed");
    }
    if (const auto why = started_.node->status().lost) {
      print_error("the engine is lost: " + why->message);
      close(Time(0));
      return ExitCode::kPeerLost;
    }
  }
  world_.signals.acknowledge();  // one more ends the process at once
  spdlog::info("draining: no new requests, up to {} s for those that run", options_.drain_seconds);
  close(std::chrono::seconds(options_.drain_seconds));
  return ExitCode::kDone;
}

void Server::close(Time patience) {
  if (monitor_ != nullptr) {
    monitor_->set_draining();
  }
  if (backend_ != nullptr) {
    backend_->close();
  }
  if (const auto drained = started_.node->drain(patience); !drained) {
    spdlog::warn("{}", drained.error().message);
  }
  for (auto* server : {http_.get(), admin_.get()}) {
    if (server != nullptr) {
      server->stop(kAnswerPatience);
    }
  }
  if (const auto stopped = started_.node->stop(kStopDeadline); !stopped) {
    spdlog::warn("{}", stopped.error().message);
  }
  started_.node.reset();
}

}  // namespace

Result<ExitCode> serve_command(const Options& options, World& world) {
  TROUPE_ASSIGN(const auto directory, model_directory(options.common.model));
  TROUPE_ASSIGN(const auto files, open_model_files(directory));
  TROUPE_ASSIGN(const auto server, Server::start(files, options, world));
  return server->serve();
}

}  // namespace troupe::deploy
