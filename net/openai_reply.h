// Private to net/: the answer to one exchange as it grows: events of its choices in, OpenAI's
// objects out, whole or in chunks. Pure; one thread at a time.
//
// RE-1: the texts, tokens and logprobs of a choice's chunks, put together, are those of the whole.
// RE-2: the first chunk of a chat's choice has the role, the last one of a choice its
//       finish_reason.
#pragma once

#include "net/openai_job.h"
#include "net/openai_logprobs.h"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::net {

struct ReplyHead {
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  std::string model;
  std::string fingerprint;  // empty: null
  std::int64_t created_unix_s = 0;
};

class Reply final {
 public:
  // `backend` outlives the Reply. Takes what it needs of the job; its requests may go after.
  Reply(const Job& job, const ModelBackend& backend, ReplyHead head);

  // REQUIRES: the choice has not finished, and the event is no failure.
  void take(std::size_t choice, const RequestEvent& event);
  [[nodiscard]] bool finished() const { return open_ == 0; }

  // Chunks for what the choice got since the last call, dumped; may be none.
  [[nodiscard]] std::vector<std::string> chunks(std::size_t choice);
  [[nodiscard]] std::string usage_chunk() const;  // the last one: usage and no choices
  [[nodiscard]] std::string whole();              // REQUIRES: finished()

  [[nodiscard]] std::uint32_t prompt_tokens() const { return prompt_tokens_; }
  [[nodiscard]] std::uint32_t completion_tokens() const { return completion_tokens_; }
  [[nodiscard]] std::string finish_reason() const;  // of the first choice; empty: not yet

 private:
  struct Choice {
    std::vector<std::uint32_t> stop_tokens;
    std::string text;  // not shown yet
    Json chat_logprobs = Json::array();
    CompletionLogprobs completion_logprobs;
    bool began = false;
    bool finished = false;
    FinishReason reason = FinishReason::kStop;
  };

  void take_tokens(Choice& choice, const RequestEvent& event);
  [[nodiscard]] Json logprobs(Choice& choice) const;
  [[nodiscard]] bool has_news(const Choice& choice) const;
  [[nodiscard]] Json choice_json(std::size_t index, Json content, Json logprobs, Json reason) const;
  [[nodiscard]] Json envelope(bool chunk) const;
  [[nodiscard]] std::string chunk(Json choice) const;
  [[nodiscard]] Json usage() const;

  const ModelBackend& backend_;
  const ReplyHead head_;
  bool chat_;
  bool echo_;
  bool no_answer_;
  bool with_logprobs_;
  bool include_usage_;
  bool continuous_usage_;
  std::uint32_t n_;
  std::vector<std::string> echoes_;
  std::vector<Choice> choices_;
  std::size_t open_;
  std::uint32_t prompt_tokens_ = 0;
  std::uint32_t completion_tokens_ = 0;
};

}  // namespace troupe::net
