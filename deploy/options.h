// Every flag of the program, typed, checked against its limits and described: this is the one place
// that knows the command line. A plain value after parsing.
#pragma once

#include "deploy/exit_code.h"
#include "kernels/ops.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::deploy {

// What every command that computes takes.
struct CommonOptions {
  std::string model;  // a Hugging Face directory; empty: the demo model
  Activation activation = Activation::kBF16;
  std::string kernels;             // a kernel set; empty: measured at start
  std::uint32_t threads = 0;       // 0: as many as the process may use
  std::string packed_weights;      // where they are kept; empty: the model's folder, "off": nowhere
  std::string log_level = "warn";  // `serve` says more: "info"
};

// Sampling as asked for; what is absent comes from generation_config.json.
struct SamplingOptions {
  std::optional<double> temperature;
  std::optional<std::uint32_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::vector<std::pair<std::uint32_t, double>> logit_bias;
  std::optional<std::uint64_t> seed;
};

// How an answer is made, whatever it answers.
struct AnswerOptions {
  SamplingOptions sampling;
  std::optional<std::uint32_t> max_tokens;
  std::vector<std::string> stop;
  std::optional<std::uint32_t> logprobs;
  bool ignore_eos = false;
};

struct TemplateOptions {
  std::optional<std::string> system;
  std::vector<std::pair<std::string, std::string>> variables;  // name, JSON text
  bool raw = false;                                            // no template: the prompt as it is
  std::int64_t now_unix_s = 0;  // what a template may show as today; main reads it once
};

enum class Input { kChat, kPrompt, kTokenIds, kRequests };

struct RunOptions {
  Input input = Input::kChat;
  std::string prompt;
  std::vector<std::uint32_t> token_ids;
  std::string requests;  // a file of JSON lines
  AnswerOptions answer;
  TemplateOptions chat;
  bool json = false;
  bool stats = false;
};

struct BenchOptions {
  std::uint32_t prompt_tokens = 512;
  std::uint32_t output_tokens = 64;
  std::uint32_t batch = 1;
  std::uint32_t repetitions = 3;
  bool profile = false;
  std::string trace;  // a file; empty: none
  bool json = false;
};

struct DevicesOptions {
  bool json = false;
};

struct PlanOptions {
  std::string mode;  // "decode" or "rows"
  std::uint32_t rows = 1;
};

// HOST:PORT; port 0 is chosen by the system and printed.
struct ListenAddress {
  std::string host;
  std::uint16_t port = 0;
};

struct ServeOptions {
  ListenAddress listen{"127.0.0.1", 8000};
  std::optional<ListenAddress> admin;  // absent: no admin listener
  std::string model_name;              // what clients call the model; empty: its directory's name
  std::string api_key_file;            // one key a line; empty: no key is asked for
  std::string tls_certificate_file;    // PEM; empty: no TLS
  std::string tls_key_file;
  std::uint32_t queue_max = 256;
  std::uint32_t sequences_max = 64;
  std::uint32_t connections_max = 1024;
  std::uint32_t drain_seconds = 30;  // for what is running when a signal comes
};

enum class Command { kRun, kServe, kBench, kDevices, kPlan };

struct Options {
  Command command = Command::kRun;
  CommonOptions common;
  RunOptions run;
  ServeOptions serve;
  BenchOptions bench;
  DevicesOptions devices;
  PlanOptions plan;
};

// Either options, or a text to print before the program ends with `code`: help, the version, or
// what is wrong.
struct Parsed {
  std::optional<Options> options;
  ExitCode code = ExitCode::kDone;
  std::string text;
};

[[nodiscard]] Parsed parse_options(int argc, const char* const* argv);

}  // namespace troupe::deploy
