// Private to net/: a checked body made into what the model is asked: one Request for each choice,
// and how their answers are to be shown. Pure but for the tokenizer; any thread.
#pragma once

#include "net/openai_parameters.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::net {

struct Job {
  bool chat = false;
  std::vector<Request> requests;  // by index of the choice: n for the first prompt, n for the next
  std::vector<std::string> echoes;  // of each prompt, with echo
  std::uint32_t n = 1;
  bool echo = false;
  bool no_answer = false;  // max_tokens 0: one token is run, for the prompt's sake, and dropped
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  std::optional<std::uint32_t> logprobs;  // reported, with so many alternatives
};

[[nodiscard]] Answer<Job> completion_job(Draft draft,
                                         const ModelBackend& backend,
                                         const ApiOptions& options);
[[nodiscard]] Answer<Job> chat_job(Draft draft, const ModelBackend& backend);

// REQUIRES: draft.messages. The prompt of a conversation, also for /tokenize.
[[nodiscard]] Answer<std::vector<std::uint32_t>> chat_prompt(const Draft& draft,
                                                             const ModelBackend& backend);
// Of a text, refused in the name of the parameter "prompt".
[[nodiscard]] Answer<std::vector<std::uint32_t>> text_prompt(const std::string& text,
                                                             const ModelBackend& backend);

}  // namespace troupe::net
