// Private to net/: one exchange that the model answers, from the submission of its choices to the
// end. Thread-safe: events come on the model's threads, the client's leaving on the server's.
//
// SE-1: all choices are submitted or none stays: a refused one cancels those before it.
// SE-2: nothing is sent before all are submitted, and a stream begins with the first event, so what
//       fails before that is answered with its status.
// SE-3: pieces are sent in order and without a lock held.
// SE-4: the outcome is told once.
#pragma once

#include "net/openai_error.h"
#include "net/openai_reply.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::net {

inline constexpr unsigned kClientGone = 499;  // what the outcome calls it; nobody is sent it

// An exchange, and what is said about it when it ends. One thread; handed from stage to stage.
struct Call {
  std::shared_ptr<Exchange> exchange;
  const Clock* clock = nullptr;
  Time began{0};
  std::function<void(const ApiOutcome&)> tell;  // may be empty
  ApiOutcome outcome;                           // route, request_id and remote are set

  // Ends the exchange; adds x-request-id.
  void answer(HttpResponse response);
  void refuse(const ApiError& error, HttpFields fields = {});
  void report();  // the outcome, with the duration
};

class Session final : public std::enable_shared_from_this<Session> {
 public:
  Session(Call call, ModelBackend& backend, const Job& job, ReplyHead head);

  void start(std::vector<Request> requests);  // once

 private:
  struct Step {  // of the answer, to be sent
    enum class What : std::uint8_t { kRespond, kBegin, kWrite, kEnd } what = What::kWrite;
    HttpResponse response;
    std::string piece;
  };
  struct Ticket {
    std::optional<RequestId> id;
    bool finished = false;
  };

  void on_event(std::size_t index, const RequestEvent& event);
  void take(std::size_t index, const RequestEvent& event);  // locked
  void fail(const ApiError& error);                         // locked
  void close(unsigned status);                              // locked
  void event(const std::string& data);                      // locked
  void gone();
  void flush();
  void cancel_rest();  // what is still running
  bool send(Step step);
  void report();

  ModelBackend& backend_;
  const bool streams_;
  const bool include_usage_;

  std::mutex mutex_;
  Call call_;
  Reply reply_;
  std::vector<Ticket> tickets_;
  std::deque<Step> steps_;
  bool submitted_ = false;
  bool began_ = false;    // the stream
  bool ended_ = false;    // nothing more is added to steps_
  bool sending_ = false;  // a thread is in flush()
  bool reported_ = false;
};

}  // namespace troupe::net
