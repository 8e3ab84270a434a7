// The door between clients' threads and the actors: a gate that bounds how many requests are
// inside, and the handle that sees to it that each of them ends exactly once. Thread-safe; no CAF
// here.
//
// AD-1: what entered leaves exactly once: when it ended, or when whoever held its OpenRequest
//       died.
// AD-2: after close() returns nobody is inside enter(), and whatever entered was handed over
//       before.
#pragma once

#include "actors/node_record.h"
#include "runtime/base/error.h"
#include "runtime/base/ids.h"
#include "runtime/base/sources.h"
#include "runtime/serve/request.h"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe {

class AdmissionGate final {
 public:
  AdmissionGate(std::uint32_t limit, std::shared_ptr<NodeRecord> record)
      : limit_(limit), record_(std::move(record)) {}

  // Counts a request in and calls `hand_over` with its id (ascending, in the order of the calls).
  // Errors: kOverloaded when full, or why the gate was closed; then nothing was called.
  [[nodiscard]] Result<RequestId> enter(const std::function<void(RequestId)>& hand_over);
  void leave();

  void close(Error why);  // the first reason stays
  // True when all have left; waits for that up to `patience`, in real time.
  [[nodiscard]] bool wait_empty(Time patience);
  [[nodiscard]] std::uint32_t inside() const;
  [[nodiscard]] NodeRecord& record() const { return *record_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable left_;
  const std::uint32_t limit_;
  const std::shared_ptr<NodeRecord> record_;
  std::uint32_t inside_ = 0;
  std::uint64_t last_ = 0;
  std::optional<Error> closed_;
};

// One request from submit() to its last event. Owned by the gateway once it has entered; the last
// owner's death ends it.
class OpenRequest final {
 public:
  OpenRequest(Request request, RequestSink sink, std::shared_ptr<AdmissionGate> gate);
  ~OpenRequest();  // not ended yet: ends with kDisconnected
  OpenRequest(const OpenRequest&) = delete;
  OpenRequest& operator=(const OpenRequest&) = delete;

  void entered(RequestId id);  // before that nothing is reported and nothing leaves
  [[nodiscard]] RequestId id() const { return id_; }
  [[nodiscard]] const std::shared_ptr<const Request>& request() const { return request_; }

  // Passes an event on; nothing after one with `finished`.
  void report(RequestEvent event);

 private:
  RequestId id_;
  std::shared_ptr<const Request> request_;
  RequestSink sink_;
  std::shared_ptr<AdmissionGate> gate_;
  bool open_ = false;
};

// Enters a checked request; `hand_over` gets it under the gate's lock. Errors: as
// AdmissionGate::enter. Counts what comes of it.
[[nodiscard]] Result<RequestId> submit_request(
    Request request,
    RequestSink sink,
    const std::shared_ptr<AdmissionGate>& gate,
    const std::function<void(std::shared_ptr<OpenRequest>)>& hand_over);

}  // namespace troupe
