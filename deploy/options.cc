#include "deploy/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>

namespace troupe::deploy {
namespace {

constexpr std::uint32_t kTokensMax = 1U << 22U;
constexpr std::uint32_t kThreadsMax = 1024;
constexpr std::uint32_t kBatchMax = 4096;
constexpr std::uint32_t kRowsMax = 1U << 16U;
constexpr std::uint32_t kRepetitionsMax = 1000;
constexpr std::uint32_t kQueueMax = 1U << 20U;
constexpr std::uint32_t kDrainSecondsMax = 3600;
constexpr double kPenaltyMax = 2;
constexpr double kBiasMax = 100;

// Texts that CLI11 hands over as they stand and that we take apart after it.
struct Raw {
  std::string activations = "bf16";
  std::string numerics = "exact";
  std::string token_ids;
  std::vector<std::string> logit_bias;
  std::vector<std::string> template_vars;
  bool chat = false;
  bool no_thinking = false;
  std::string listen;
  std::string admin_listen;
};

template <class T>
bool read_number(std::string_view text, T& out) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  return code == std::errc() && end == text.data() + text.size();
}

// A check for CLI11: the empty text means that the value is fine.
template <class T>
CLI::Validator between(T min, T max) {
  std::ostringstream text;
  text << +min << ".." << +max;
  const std::string range = text.str();
  return {[min, max, range](std::string& value) -> std::string {
            T number{};
            if (!read_number(value, number) || !(number >= min && number <= max)) {
              return "'" + value + "' is not a number in " + range;
            }
            return {};
          },
          range};
}

// The same with the lower end left out: (min, max].
CLI::Validator above(double min, double max) {
  CLI::Validator inside = between(min, max);
  std::ostringstream text;
  text << "more than " << min << ", at most " << max;
  const std::string range = text.str();
  return {[inside, min, range](std::string& value) -> std::string {
            double number = 0;
            if (!inside(value).empty() || !read_number(value, number) || number <= min) {
              return "'" + value + "' is not a number that is " + range;
            }
            return {};
          },
          range};
}

template <class T>
CLI::Option* add_many(CLI::App& app,
                      const std::string& name,
                      std::vector<T>& out,
                      const std::string& doc) {
  // One value for each time the flag is given; otherwise it would swallow the MODEL behind it.
  return app.add_option(name, out, doc)->allow_extra_args(false)->take_all();
}

void add_common(CLI::App& app, CommonOptions& common, Raw& raw) {
  app.add_option("MODEL", common.model, "a Hugging Face directory (default: the demo model)");
  app.add_option("--activations",
                 raw.activations,
                 "type of activations and KV, bf16 or fp32 (default bf16)")
      ->check(CLI::IsMember({"bf16", "fp32"}));
  app.add_option(
      "--kernels", common.kernels, "kernel set (see `troupe devices`; default: measured at start)");
  app.add_option(
         "--numerics", raw.numerics, "exact: tokens do not depend on batch, threads or chunks")
      ->check(CLI::IsMember({"exact"}));
  app.add_option(
         "--threads", common.threads, "worker threads (default: all that the process may use)")
      ->check(between<std::uint32_t>(1, kThreadsMax));
  app.add_option(
      "--packed-weights",
      common.packed_weights,
      "folder that keeps packed weights for the next start, or off (default: the model's "
      "own folder)");
  app.add_option(
         "--log-level", common.log_level, "trace, debug, info, warn, error or off (default warn)")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
}

void add_sampling(CLI::App& app, SamplingOptions& sampling, Raw& raw) {
  app.add_option("--temperature", sampling.temperature, "0: the likeliest token")
      ->check(between(0.0, 100.0));
  app.add_option("--top-k", sampling.top_k, "sample from the K likeliest tokens; 0: no limit")
      ->check(between<std::uint32_t>(0, kTokensMax));
  app.add_option(
         "--top-p", sampling.top_p, "sample from the likeliest tokens that hold this probability")
      ->check(above(0, 1));
  app.add_option(
         "--min-p", sampling.min_p, "leave out tokens less likely than this share of the likeliest")
      ->check(between(0.0, 1.0));
  app.add_option("--repetition-penalty", sampling.repetition_penalty, "1: none")
      ->check(above(0, 100));
  app.add_option("--presence-penalty",
                 sampling.presence_penalty,
                 "subtracted from logits of generated tokens")
      ->check(between(-kPenaltyMax, kPenaltyMax));
  app.add_option(
         "--frequency-penalty", sampling.frequency_penalty, "the same, for each time they occurred")
      ->check(between(-kPenaltyMax, kPenaltyMax));
  add_many(
      app, "--logit-bias", raw.logit_bias, "ID=VALUE, added to a token's logit; may be repeated");
  app.add_option("--seed", sampling.seed, "of the sampling (default: drawn, and reported)")
      ->check(between<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()));
}

void add_answer(CLI::App& app, AnswerOptions& answer, Raw& raw) {
  app.add_option("--max-tokens",
                 answer.max_tokens,
                 "most tokens of an answer (default: what the model says, else 1024)")
      ->check(between<std::uint32_t>(1, kTokensMax));
  add_many(app, "--stop", answer.stop, "a text that ends the answer; may be repeated");
  app.add_option("--logprobs",
                 answer.logprobs,
                 "with --json: log probabilities, and those of N alternatives")
      ->check(between<std::uint32_t>(0, kTopLogprobs));
  app.add_flag("--ignore-eos", answer.ignore_eos, "do not end at the model's stop tokens");
  add_sampling(app, answer.sampling, raw);
}

void add_run(CLI::App& app, RunOptions& run, Raw& raw) {
  auto* prompt = app.add_option("--prompt", run.prompt, "answer this text and end");
  auto* chat = app.add_flag(
      "--chat", raw.chat, "talk; without a terminal a line of input is a turn (the default)");
  auto* ids = app.add_option("--token-ids", raw.token_ids, "continue these token ids: 1,2,3");
  auto* requests = app.add_option(
      "--requests",
      run.requests,
      "answer a file of JSON lines together: {\"messages\"|\"prompt\"|\"token_ids\", ...}");
  prompt->excludes(chat)->excludes(ids)->excludes(requests);
  chat->excludes(ids)->excludes(requests);
  ids->excludes(requests);
  add_answer(app, run.answer, raw);
  app.add_option("--system", run.chat.system, "a system message");
  auto* bare = app.add_flag(
      "--raw", run.chat.raw, "no chat template: the model continues the prompt as it is");
  app.add_flag("--no-thinking", raw.no_thinking, "short for --template-var enable_thinking=false")
      ->excludes(bare);
  add_many(
      app, "--template-var", raw.template_vars, "KEY=JSON, for the chat template; may be repeated")
      ->excludes(bare);
  bare->excludes(chat)->excludes(ids);
  app.get_option("--system")->excludes(bare)->excludes(ids);
  app.add_flag("--json", run.json, "print an object with ids, text, finish reason and figures");
  app.add_flag("--stats", run.stats, "print figures to standard error");
}

void add_serve(CLI::App& app, ServeOptions& serve, Raw& raw) {
  app.add_option("--listen", raw.listen, "HOST:PORT; port 0: any (default 127.0.0.1:8000)");
  app.add_option("--admin-listen",
                 raw.admin_listen,
                 "HOST:PORT for drain, profile and the flight recorder (default: none)");
  app.add_option(
      "--model-name", serve.model_name, "what clients call it (default: its directory's name)");
  app.add_option("--api-key-file", serve.api_key_file, "one key a line; clients must send one");
  auto* certificate = app.add_option(
      "--tls-certificate", serve.tls_certificate_file, "a PEM file with the chain: serve HTTPS");
  auto* key = app.add_option("--tls-key", serve.tls_key_file, "its private key, a PEM file");
  certificate->needs(key);
  key->needs(certificate);
  app.add_option("--queue", serve.queue_max, "requests that may wait; one more is refused (256)")
      ->check(between<std::uint32_t>(1, kQueueMax));
  app.add_option("--sequences", serve.sequences_max, "sequences that run at once (64)")
      ->check(between<std::uint32_t>(1, kBatchMax));
  app.add_option("--connections", serve.connections_max, "open connections (1024)")
      ->check(between<std::uint32_t>(1, kQueueMax));
  app.add_option("--drain-seconds", serve.drain_seconds, "for running requests after a signal (30)")
      ->check(between<std::uint32_t>(0, kDrainSecondsMax));
}

void add_bench(CLI::App& app, BenchOptions& bench) {
  app.add_option(
         "--prompt-tokens", bench.prompt_tokens, "tokens of a prompt; 0: no prefill (default 512)")
      ->check(between<std::uint32_t>(0, kTokensMax));
  app.add_option("--output-tokens",
                 bench.output_tokens,
                 "tokens decoded a sequence; 0: no decode (default 64)")
      ->check(between<std::uint32_t>(0, kTokensMax));
  app.add_option("--batch", bench.batch, "sequences (default 1)")
      ->check(between<std::uint32_t>(1, kBatchMax));
  app.add_option("--repetitions", bench.repetitions, "measurements of each figure (default 3)")
      ->check(between<std::uint32_t>(1, kRepetitionsMax));
  app.add_flag("--profile", bench.profile, "time, bytes and operations of each kind of launch");
  app.add_option("--trace",
                 bench.trace,
                 "write every launch of one more run to FILE, as Chrome and Perfetto read it");
  app.add_flag("--json", bench.json, "print an object");
}

void add_plan(CLI::App& app, PlanOptions& plan) {
  plan.mode = "decode";
  app.add_option("--mode", plan.mode, "decode or rows (default decode)")
      ->check(CLI::IsMember({"decode", "rows"}));
  app.add_option("--rows", plan.rows, "rows of a step (default 1)")
      ->check(between<std::uint32_t>(1, kRowsMax));
}

// The parts of "a,b,c", none of them empty.
bool split(std::string_view text, char separator, std::vector<std::string_view>& parts) {
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (parts.back().empty()) {
      return false;
    }
    if (end == std::string_view::npos) {
      return true;
    }
    text.remove_prefix(end + 1);
  }
}

std::string take_token_ids(const std::string& text, std::vector<std::uint32_t>& out) {
  std::vector<std::string_view> parts;
  const bool whole = split(text, ',', parts);
  for (const auto part : parts) {
    std::uint32_t id = 0;
    if (!whole || !read_number(part, id)) {
      return "--token-ids: '" + text + "' is not a list of token ids like 1,2,3";
    }
    out.push_back(id);
  }
  return {};
}

std::string take_bias(const std::string& text, std::vector<std::pair<std::uint32_t, double>>& out) {
  const auto equals = text.find('=');
  std::uint32_t id = 0;
  double value = 0;
  if (equals == std::string::npos || !read_number(std::string_view(text).substr(0, equals), id) ||
      !read_number(std::string_view(text).substr(equals + 1), value) ||
      !(std::abs(value) <= kBiasMax)) {
    return "--logit-bias: '" + text + "' is not ID=VALUE with a token id and a value in -100..100";
  }
  out.emplace_back(id, value);
  return {};
}

std::string take_variable(const std::string& text,
                          std::vector<std::pair<std::string, std::string>>& out) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return "--template-var: '" + text + "' is not KEY=JSON";
  }
  out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  return {};
}

// "HOST:PORT" or "[HOST]:PORT".
std::string take_address(const std::string& flag, std::string_view text, ListenAddress& out) {
  const auto colon = text.rfind(':');
  std::string_view host = text.substr(0, colon == std::string_view::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    host = {};  // an IPv6 address needs brackets
  }
  if (host.empty() || !read_number(text.substr(colon + 1), out.port)) {
    return flag + ": '" + std::string(text) +
           "' is not HOST:PORT like 127.0.0.1:8000 or [::1]:8000";
  }
  out.host = host;
  return {};
}

std::string finish_serve(const Raw& raw, ServeOptions& serve) {
  std::string problem;
  if (!raw.listen.empty()) {
    problem = take_address("--listen", raw.listen, serve.listen);
  }
  if (problem.empty() && !raw.admin_listen.empty()) {
    problem = take_address("--admin-listen", raw.admin_listen, serve.admin.emplace());
  }
  return problem;
}

std::string finish_run(const CLI::App& app, const Raw& raw, RunOptions& run) {
  if (app.count("--prompt") > 0) {
    run.input = Input::kPrompt;
  } else if (app.count("--token-ids") > 0) {
    run.input = Input::kTokenIds;
    if (auto problem = take_token_ids(raw.token_ids, run.token_ids); !problem.empty()) {
      return problem;
    }
  } else if (app.count("--requests") > 0) {
    run.input = Input::kRequests;
  }
  for (const auto& text : raw.logit_bias) {
    if (auto problem = take_bias(text, run.answer.sampling.logit_bias); !problem.empty()) {
      return problem;
    }
  }
  for (const auto& text : raw.template_vars) {
    if (auto problem = take_variable(text, run.chat.variables); !problem.empty()) {
      return problem;
    }
  }
  if (raw.no_thinking) {
    run.chat.variables.emplace_back("enable_thinking", "false");
  }
  if (std::any_of(run.answer.stop.begin(), run.answer.stop.end(), [](const auto& text) {
        return text.empty();
      })) {
    return "--stop: an empty text would end every answer at once";
  }
  if (run.json && run.input == Input::kChat) {
    return "--json needs --prompt, --token-ids or --requests: a chat is for people";
  }
  if (run.answer.logprobs && !run.json && run.input != Input::kRequests) {
    return "--logprobs is a part of the JSON output: add --json";
  }
  return {};
}

}  // namespace

Parsed parse_options(int argc, const char* const* argv) {
  Options options;
  Raw raw;
  CLI::App app("Troupe runs hybrid GatedDeltaNet + attention + MoE language models.", "troupe");
  app.set_version_flag("--version", "troupe " TROUPE_VERSION);
  app.require_subcommand(0, 1);  // none is refused below: here CLI11 would not name a misspelt one
  auto* run = app.add_subcommand("run", "answer a prompt, a file of requests, or talk");
  auto* serve = app.add_subcommand("serve", "answer OpenAI's HTTP API, and a page at /");
  auto* bench =
      app.add_subcommand("bench", "measure prefill and decode against what the memory can deliver");
  auto* devices = app.add_subcommand("devices", "what the devices of this machine can do");
  auto* plan = app.add_subcommand("plan", "what a step would run; loads no weights");
  for (auto* command : {run, serve, bench, devices, plan}) {
    add_common(*command, options.common, raw);
  }
  add_run(*run, options.run, raw);
  add_serve(*serve, options.serve, raw);
  add_bench(*bench, options.bench);
  devices->add_flag("--json", options.devices.json, "print an object");
  add_plan(*plan, options.plan);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help and --version
    std::ostringstream text;
    app.exit(success, text, text);
    return {std::nullopt, ExitCode::kDone, text.str()};
  } catch (const CLI::ParseError& problem) {
    return {std::nullopt, ExitCode::kUsage, problem.what()};
  }
  if (app.get_subcommands().empty()) {
    return {std::nullopt,
            ExitCode::kUsage,
            "a subcommand is needed: run, serve, bench, devices or plan"};
  }
  options.common.activation = raw.activations == "fp32" ? Activation::kF32 : Activation::kBF16;
  options.command = run->parsed()       ? Command::kRun
                    : serve->parsed()   ? Command::kServe
                    : bench->parsed()   ? Command::kBench
                    : devices->parsed() ? Command::kDevices
                                        : Command::kPlan;
  if (run->parsed()) {
    if (auto problem = finish_run(*run, raw, options.run); !problem.empty()) {
      return {std::nullopt, ExitCode::kUsage, problem};
    }
  }
  if (serve->parsed()) {
    if (auto problem = finish_serve(raw, options.serve); !problem.empty()) {
      return {std::nullopt, ExitCode::kUsage, problem};
    }
    if (serve->count("--log-level") == 0) {
      options.common.log_level = "info";
    }
  }
  if (bench->parsed() && options.bench.prompt_tokens == 0 && options.bench.output_tokens == 0) {
    return {std::nullopt,
            ExitCode::kUsage,
            "--prompt-tokens 0 and --output-tokens 0 leave nothing to measure"};
  }
  return {std::move(options), ExitCode::kDone, {}};
}

}  // namespace troupe::deploy
