// NodeBackend: what the OpenAI API needs of a model, from its files and the node that runs it. Made
// by `troupe serve`; any thread.
#pragma once

#include "actors/node.h"
#include "deploy/model_files.h"
#include "net/openai.h"
#include "runtime/base/error.h"
#include "runtime/base/sources.h"
#include "runtime/program/stage.h"

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::deploy {

class NodeBackend final : public net::ModelBackend {
 public:
  // `files`, `node` and `clock` outlive the backend. `now_unix_s`: the time of this call.
  NodeBackend(const ModelFiles& files,
              Node& node,
              const Clock& clock,
              const StageInfo& stage,
              std::string name,
              std::int64_t now_unix_s);

  [[nodiscard]] const net::ModelCard& card() const override { return card_; }
  [[nodiscard]] const net::TokenizerCard& tokenizer_card() const override { return tokenizer_; }
  [[nodiscard]] Result<std::vector<std::uint32_t>> encode(std::string_view text,
                                                          bool parse_special) const override;
  [[nodiscard]] std::string decode(const std::vector<std::uint32_t>& tokens) const override;
  [[nodiscard]] std::string token_bytes(std::uint32_t token) const override;
  [[nodiscard]] Result<std::vector<std::uint32_t>> encode_chat(
      const net::ChatPrompt& prompt) const override;
  [[nodiscard]] Request defaults() const override;
  [[nodiscard]] Result<RequestId> submit(Request request, RequestSink sink) override;
  void cancel(RequestId id) override { node_.cancel(id); }

  // From now on every submit is refused with kDisconnected.
  void close() { closed_ = true; }
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  const ModelFiles& files_;
  Node& node_;
  const Clock& clock_;
  net::ModelCard card_;
  net::TokenizerCard tokenizer_;
  Time started_;
  mutable std::mutex template_mutex_;  // the template engine is for one thread
  std::atomic<bool> closed_ = false;
};

}  // namespace troupe::deploy
