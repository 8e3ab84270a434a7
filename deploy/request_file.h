// A file of questions, one JSON object a line: {"messages": [{"role", "content"}]} or {"prompt"} or
// {"token_ids"}, and what the line wants different from the command line: max_tokens, temperature,
// top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, logit_bias {"id":
// value}, seed, stop (a text or a list), logprobs, ignore_eos. Other members belong to the file's
// owner and are left alone. Read as a whole before anything runs.
#pragma once

#include "deploy/model_files.h"
#include "runtime/base/error.h"

#include <filesystem>
#include <string_view>
#include <vector>

namespace troupe::deploy {

// Empty lines are skipped. kInvalid names file, line and member.
[[nodiscard]] Result<std::vector<Question>> read_questions(const std::filesystem::path& path,
                                                           const AnswerOptions& usual);
[[nodiscard]] Result<std::vector<Question>> parse_questions(std::string_view text,
                                                            const std::string& file,
                                                            const AnswerOptions& usual);

}  // namespace troupe::deploy
