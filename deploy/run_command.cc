#include "deploy/commands.h"
#include "deploy/demo_model.h"
#include "deploy/model_files.h"
#include "deploy/request_file.h"
#include "deploy/service.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace troupe::deploy {
namespace {

// Without a tokenizer the answer is its ids.
std::string ids_text(const std::vector<TokenOutput>& tokens) {
  std::string text;
  for (const auto& token : tokens) {
    text += (text.empty() ? "" : ",") + std::to_string(token.token);
  }
  return text;
}

// What is left to print when the answer has ended.
Status print_end(const ModelFiles& files,
                 const Request& request,
                 const Answer& answer,
                 const Setting& setting,
                 bool json,
                 Output& output) {
  if (json) {
    return output.write(answer_json(request.prompt, answer, request.logprobs.has_value(), setting));
  }
  return output.write((files.tokenizer == nullptr ? ids_text(answer.tokens) : "") + "\n");
}

Result<ExitCode> answer_one(const ModelFiles& files,
                            const Question& question,
                            const RunOptions& run,
                            Service& service,
                            World& world) {
  TROUPE_ASSIGN(const auto request, make_request(files, question, run.chat, service.max_context()));
  const auto show = [&run, &world](const std::string& text) {
    return run.json ? Status() : world.output.write(text);
  };
  TROUPE_ASSIGN(auto asked, ask(service.session(), request, show));
  if (asked.silent) {
    return report_silence();
  }
  TROUPE_TRY(asked.output);
  if (asked.answer.failure) {
    return tl::unexpected(*std::move(asked.answer.failure));
  }
  TROUPE_TRY(print_end(files, request, asked.answer, service.setting(), run.json, world.output));
  if (run.stats) {
    std::fputs(
        (stats_text(asked.answer) + setting_text(service.setting(), resident_bytes())).c_str(),
        stderr);
  }
  return asked.interrupted ? ExitCode::kFailed : ExitCode::kDone;
}

Question question_of(const RunOptions& run) {
  Question question;
  question.prompt = run.prompt;
  question.token_ids = run.token_ids;
  question.answer = run.answer;
  return question;
}

}  // namespace

Result<ExitCode> run_command(const Options& options, World& world) {
  const RunOptions& run = options.run;
  TROUPE_ASSIGN(const auto directory, model_directory(options.common.model));
  TROUPE_ASSIGN(const auto files, open_model_files(directory));
  std::vector<Question> questions;
  if (run.input == Input::kRequests) {
    TROUPE_ASSIGN(questions, read_questions(run.requests, run.answer));
  } else if (run.input != Input::kChat) {
    questions.push_back(question_of(run));
    // What is wrong with a single question shows before a large model is loaded.
    TROUPE_TRY(
        make_request(files, questions.front(), run.chat, files.config.max_position_embeddings));
  } else if (files.chat_template == nullptr) {
    return error(Kind::kInvalid,
                 directory.string() +
                     " has no chat template or no tokenizer, so there is nobody to talk to; "
                     "give --prompt or --token-ids");
  }
  TROUPE_ASSIGN(const auto service, Service::start(files, options.common, world));
  switch (run.input) {
    case Input::kChat:
      return chat(files, run, *service, world);
    case Input::kRequests:
      return answer_file(files, questions, run, *service, world);
    case Input::kPrompt:
    case Input::kTokenIds:
      break;
  }
  return answer_one(files, questions.front(), run, *service, world);
}

}  // namespace troupe::deploy
