#include "actors/admission.h"

#include <string>
#include <utility>

namespace troupe {

Result<RequestId> AdmissionGate::enter(const std::function<void(RequestId)>& hand_over) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    record_->refused_closed();
    return tl::unexpected(*closed_);
  }
  if (inside_ >= limit_) {
    record_->refused_full(inside_, limit_);
    return error(Kind::kOverloaded,
                 "the queue is full: " + std::to_string(inside_) +
                     " requests are running or waiting, at most " + std::to_string(limit_) +
                     " may; try again later");
  }
  ++inside_;
  const RequestId id{++last_};
  hand_over(id);
  return id;
}

void AdmissionGate::leave() {
  {
    const std::lock_guard lock(mutex_);
    TROUPE_CHECK(inside_ > 0, "what leaves has entered");
    --inside_;
  }
  left_.notify_all();
}

void AdmissionGate::close(Error why) {
  const std::lock_guard lock(mutex_);
  if (!closed_) {
    closed_ = std::move(why);
  }
}

bool AdmissionGate::wait_empty(Time patience) {
  std::unique_lock lock(mutex_);
  return left_.wait_for(lock, patience, [this] { return inside_ == 0; });
}

std::uint32_t AdmissionGate::inside() const {
  const std::lock_guard lock(mutex_);
  return inside_;
}

OpenRequest::OpenRequest(Request request, RequestSink sink, std::shared_ptr<AdmissionGate> gate)
    : request_(std::make_shared<const Request>(std::move(request))),
      sink_(std::move(sink)),
      gate_(std::move(gate)) {}

OpenRequest::~OpenRequest() {
  if (open_) {
    RequestEvent event;
    event.finished = true;
    event.reason = FinishReason::kError;
    event.failure =
        Error{Kind::kDisconnected,
              "request " + std::to_string(id_.value) + " was lost with the gateway that held it",
              std::source_location::current()};
    event.stats.prompt_tokens = static_cast<std::uint32_t>(request_->prompt.size());
    report(std::move(event));
  }
}

void OpenRequest::entered(RequestId id) {
  id_ = id;
  open_ = true;
}

void OpenRequest::report(RequestEvent event) {
  if (!open_) {
    return;
  }
  event.id = id_;
  open_ = !event.finished;
  if (event.finished) {
    gate_->record().finished(event);
  }
  if (sink_) {
    sink_(event);
  }
  if (!open_) {
    sink_ = nullptr;  // whatever it refers to is not needed any more
    gate_->leave();
  }
}

Result<RequestId> submit_request(
    Request request,
    RequestSink sink,
    const std::shared_ptr<AdmissionGate>& gate,
    const std::function<void(std::shared_ptr<OpenRequest>)>& hand_over) {
  // Held until the gate's lock is free again: if the gateway is dead, this is the last owner, and
  // its end takes that lock.
  const auto open = std::make_shared<OpenRequest>(std::move(request), std::move(sink), gate);
  return gate->enter([&open, &hand_over, &gate](RequestId id) {
    open->entered(id);
    gate->record().admitted(id, *open->request());
    gate->record().begin_work(NodeActor::kGateway);
    hand_over(open);
  });
}

}  // namespace troupe
