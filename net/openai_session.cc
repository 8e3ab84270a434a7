#include "net/openai_session.h"

#include <utility>

namespace troupe::net {

void Call::answer(HttpResponse response) {
  outcome.status = response.status;
  response.fields.emplace_back("x-request-id", outcome.request_id);
  exchange->respond(std::move(response));
  report();
}

void Call::refuse(const ApiError& error, HttpFields fields) {
  outcome.error_code = error.code;
  HttpResponse response = respond_with(error);
  response.fields.insert(response.fields.end(), fields.begin(), fields.end());
  answer(std::move(response));
}

void Call::report() {
  outcome.duration = clock->now() - began;
  if (tell) {
    tell(outcome);
  }
}

Session::Session(Call call, ModelBackend& backend, const Job& job, ReplyHead head)
    : backend_(backend),
      streams_(job.stream),
      include_usage_(job.include_usage),
      call_(std::move(call)),
      reply_(job, backend, std::move(head)),
      tickets_(job.requests.size()) {
  call_.outcome.streamed = job.stream;
}

void Session::start(std::vector<Request> requests) {
  call_.exchange->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->gone();
    }
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) {
        break;
      }
    }
    const auto id = backend_.submit(std::move(requests[i]),
                                    [self = shared_from_this(), i](const RequestEvent& event) {
                                      // A copy: the model may drop this function while it runs.
                                      std::shared_ptr<Session>(self)->on_event(i, event);
                                    });
    const std::lock_guard lock(mutex_);
    if (!id) {
      fail(api_error(id.error()));
      break;
    }
    tickets_[i].id = *id;
  }
  bool ended = false;
  {
    const std::lock_guard lock(mutex_);
    submitted_ = true;
    ended = ended_;
  }
  if (ended) {
    cancel_rest();
  }
  flush();
}

void Session::on_event(std::size_t index, const RequestEvent& event) {
  bool cancel = false;
  {
    const std::lock_guard lock(mutex_);
    if (tickets_[index].finished) {
      return;
    }
    tickets_[index].finished = event.finished;
    if (ended_) {
      return;
    }
    take(index, event);
    cancel = ended_ && submitted_;
  }
  if (cancel) {
    cancel_rest();
  }
  flush();
}

void Session::take(std::size_t index, const RequestEvent& event) {
  if (event.finished && event.reason == FinishReason::kError) {
    fail(api_error(
        event.failure.value_or(Error{Kind::kInternal, "the model failed without saying why", {}})));
    return;
  }
  if (event.finished && event.reason == FinishReason::kCancelled) {
    fail(api_error(Error{Kind::kCancelled, "the server cancelled the request", {}}));
    return;
  }
  reply_.take(index, event);
  if (!streams_) {
    if (reply_.finished()) {
      steps_.push_back({Step::What::kRespond, {.body = reply_.whole()}, {}});
      close(200);
    }
    return;
  }
  for (const auto& chunk : reply_.chunks(index)) {
    this->event(chunk);
  }
  if (reply_.finished()) {
    if (include_usage_) {
      this->event(reply_.usage_chunk());
    }
    this->event("[DONE]");
    steps_.push_back({Step::What::kEnd, {}, {}});
    close(200);
  }
}

// One server-sent event; the first one begins the stream.
void Session::event(const std::string& data) {
  if (!began_) {
    began_ = true;
    steps_.push_back({Step::What::kBegin,
                      {.content_type = "text/event-stream",
                       .fields = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}}},
                      {}});
  }
  steps_.push_back({Step::What::kWrite, {}, "data: " + data + "\n\n"});
}

void Session::fail(const ApiError& error) {
  if (ended_) {
    return;
  }
  call_.outcome.error_code = error.code;
  if (submitted_ && began_) {
    event(error_body(error));
    event("[DONE]");
    steps_.push_back({Step::What::kEnd, {}, {}});
    close(200);
    call_.outcome.finish_reason = name(FinishReason::kError);
    return;
  }
  steps_.clear();  // nothing was sent yet (SE-2)
  steps_.push_back({Step::What::kRespond, respond_with(error), {}});
  close(error.status);
}

void Session::close(unsigned status) {
  ended_ = true;
  call_.outcome.status = status;
  call_.outcome.finish_reason = reply_.finish_reason();
}

void Session::gone() {
  {
    const std::lock_guard lock(mutex_);
    if (reported_) {
      return;
    }
    reported_ = true;
    if (!ended_) {
      close(0);
    }
    steps_.clear();
    call_.outcome.status = kClientGone;
    call_.outcome.error_code = "client_gone";
    call_.outcome.finish_reason = name(FinishReason::kCancelled);
  }
  report();
  cancel_rest();
}

// Sends what there is, unless another thread does so already: then that one sends this too.
void Session::flush() {
  {
    const std::lock_guard lock(mutex_);
    if (!submitted_ || sending_) {
      return;
    }
    sending_ = true;
  }
  for (;;) {
    Step step;
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      if (steps_.empty()) {
        sending_ = false;
        return;
      }
      step = std::move(steps_.front());
      steps_.pop_front();
      last = step.what == Step::What::kRespond || step.what == Step::What::kEnd;
    }
    if (!send(std::move(step))) {
      gone();
    } else if (last) {
      {
        const std::lock_guard lock(mutex_);
        if (std::exchange(reported_, true)) {
          continue;
        }
      }
      report();
    }
  }
}

bool Session::send(Step step) {
  Exchange& exchange = *call_.exchange;
  const auto named = [this](HttpResponse response) {
    response.fields.emplace_back("x-request-id", call_.outcome.request_id);
    return response;
  };
  switch (step.what) {
    case Step::What::kRespond:
      exchange.respond(named(std::move(step.response)));
      return true;
    case Step::What::kBegin:
      return exchange.begin_stream(named(std::move(step.response)));
    case Step::What::kWrite:
      return exchange.write(std::move(step.piece));
    case Step::What::kEnd:
      exchange.end();
      return true;
  }
  return false;
}

void Session::cancel_rest() {
  std::vector<RequestId> running;
  {
    const std::lock_guard lock(mutex_);
    for (auto& ticket : tickets_) {
      if (ticket.id && !std::exchange(ticket.finished, true)) {
        running.push_back(*ticket.id);
      }
    }
  }
  for (const RequestId id : running) {
    backend_.cancel(id);
  }
}

void Session::report() {
  call_.outcome.prompt_tokens = reply_.prompt_tokens();
  call_.outcome.completion_tokens = reply_.completion_tokens();
  call_.report();
}

}  // namespace troupe::net
