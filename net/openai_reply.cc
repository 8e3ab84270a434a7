#include "net/openai_reply.h"

#include <algorithm>
#include <utility>

namespace troupe::net {

Reply::Reply(const Job& job, const ModelBackend& backend, ReplyHead head)
    : backend_(backend),
      head_(std::move(head)),
      chat_(job.chat),
      echo_(job.echo),
      no_answer_(job.no_answer),
      with_logprobs_(job.logprobs.has_value()),
      include_usage_(job.include_usage),
      continuous_usage_(job.continuous_usage),
      n_(job.n),
      echoes_(job.echoes),
      choices_(job.requests.size()),
      open_(job.requests.size()) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Request& request = job.requests[i];
    choices_[i].stop_tokens = request.stop_tokens;
    if (i % n_ == 0) {
      prompt_tokens_ += static_cast<std::uint32_t>(request.prompt.size());
    }
  }
}

void Reply::take(std::size_t index, const RequestEvent& event) {
  Choice& choice = choices_[index];
  TROUPE_CHECK(!choice.finished, "nothing comes after the last event (RQ-1)");
  if (echo_ && !choice.began) {
    choice.text = echoes_[index / n_];
    choice.began = true;
  }
  if (with_logprobs_) {
    for (std::size_t i = 0; i < event.prompt.size(); ++i) {
      choice.completion_logprobs.add(event.prompt[i], backend_, i > 0);
    }
  }
  if (!no_answer_) {
    take_tokens(choice, event);
  }
  if (event.finished) {
    choice.finished = true;
    choice.reason = no_answer_ ? FinishReason::kLength : event.reason;
    --open_;
  }
}

// A stop token is counted and is among a completion's logprobs, which scoring clients index by
// position; it has no text and is not among a chat's, whose tokens make up the content.
void Reply::take_tokens(Choice& choice, const RequestEvent& event) {
  choice.text += event.text;
  completion_tokens_ += static_cast<std::uint32_t>(event.tokens.size());
  if (!with_logprobs_) {
    return;
  }
  for (std::size_t i = 0; i < event.tokens.size(); ++i) {
    const TokenOutput& token = event.tokens[i];
    const bool ends =
        event.finished && event.reason == FinishReason::kStop && i + 1 == event.tokens.size() &&
        std::find(choice.stop_tokens.begin(), choice.stop_tokens.end(), token.token) !=
            choice.stop_tokens.end();
    if (!chat_) {
      choice.completion_logprobs.add(token, backend_, true);
    } else if (!ends) {
      choice.chat_logprobs.push_back(chat_logprob(token, backend_));
    }
  }
}

Json Reply::logprobs(Choice& choice) const {
  if (!with_logprobs_) {
    return nullptr;
  }
  if (!chat_) {
    return choice.completion_logprobs.take();
  }
  Json json;
  json["content"] = std::exchange(choice.chat_logprobs, Json::array());
  json["refusal"] = nullptr;
  return json;
}

bool Reply::has_news(const Choice& choice) const {
  return !choice.text.empty() || !choice.completion_logprobs.empty() ||
         !choice.chat_logprobs.empty();
}

std::vector<std::string> Reply::chunks(std::size_t index) {
  Choice& choice = choices_[index];
  std::vector<std::string> chunks;
  const Json reason = choice.finished ? Json(name(choice.reason)) : Json(nullptr);
  if (!chat_) {
    if (has_news(choice) || choice.finished) {
      Json text = std::exchange(choice.text, {});
      chunks.push_back(chunk(choice_json(index, std::move(text), logprobs(choice), reason)));
    }
    return chunks;
  }
  if (!choice.began) {
    choice.began = true;
    const Json role = {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}};
    chunks.push_back(chunk(choice_json(index, role, nullptr, nullptr)));
  }
  if (has_news(choice)) {
    const Json delta = {{"content", std::exchange(choice.text, {})}};
    chunks.push_back(chunk(choice_json(index, delta, logprobs(choice), nullptr)));
  }
  if (choice.finished) {
    chunks.push_back(chunk(choice_json(index, Json::object(), nullptr, reason)));
  }
  return chunks;
}

// `content`: a text, a delta or a message.
Json Reply::choice_json(std::size_t index, Json content, Json logprobs, Json reason) const {
  const char* key = !chat_ ? "text" : content.contains("annotations") ? "message" : "delta";
  Json json;
  json["index"] = index;
  json[key] = std::move(content);
  json["logprobs"] = std::move(logprobs);
  json["finish_reason"] = std::move(reason);
  return json;
}

Json Reply::envelope(bool chunk) const {
  Json json;
  json["id"] = head_.id;
  json["object"] = !chat_ ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  json["created"] = head_.created_unix_s;
  json["model"] = head_.model;
  json["system_fingerprint"] = head_.fingerprint.empty() ? Json(nullptr) : Json(head_.fingerprint);
  json["choices"] = Json::array();
  return json;
}

std::string Reply::chunk(Json choice) const {
  Json json = envelope(true);
  json["choices"].push_back(std::move(choice));
  if (continuous_usage_) {
    json["usage"] = usage();
  } else if (include_usage_) {
    json["usage"] = nullptr;
  }
  return dump(json);
}

Json Reply::usage() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", completion_tokens_},
          {"total_tokens", prompt_tokens_ + completion_tokens_}};
}

std::string Reply::usage_chunk() const {
  Json json = envelope(true);
  json["usage"] = usage();
  return dump(json);
}

std::string Reply::whole() {
  Json json = envelope(false);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    Json content = std::move(choice.text);
    if (chat_) {
      content = {{"role", "assistant"},
                 {"content", std::move(content)},
                 {"refusal", nullptr},
                 {"annotations", Json::array()}};
    }
    json["choices"].push_back(
        choice_json(i, std::move(content), logprobs(choice), name(choice.reason)));
  }
  json["usage"] = usage();
  return dump(json);
}

std::string Reply::finish_reason() const {
  const Choice& first = choices_.front();
  return first.finished ? std::string(name(first.reason)) : std::string();
}

}  // namespace troupe::net
