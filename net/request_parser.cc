#include "net/request_parser.h"

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe::net {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

std::string_view standard(string_view text) {
  return {text.data(), text.size()};
}

// Beast's grammar, filling an HttpRequest. Beast calls it back in the order of the bytes.
class Grammar final : public http::basic_parser<true> {
 public:
  explicit Grammar(std::shared_ptr<BodyBudget> budget) : lease(std::move(budget)) {}

  HttpRequest request;
  BodyLease lease;
  std::string target;
  bool http_1_1 = false;
  bool header_done = false;
  bool over_budget = false;

 private:
  std::size_t add_to_body(string_view bytes, error_code& ec) {
    if (!lease.grow(bytes.size())) {
      over_budget = true;
      ec = http::error::body_limit;
      return 0;
    }
    request.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_request_impl(http::verb /*verb*/,
                       string_view method,
                       string_view path_and_query,
                       int version,
                       error_code& /*ec*/) override {
    http_1_1 = version >= 11;
    request.method = standard(method);
    target = standard(path_and_query);
  }
  void on_response_impl(int /*status*/,
                        string_view /*reason*/,
                        int /*version*/,
                        error_code& /*ec*/) override {}
  void on_field_impl(http::field /*field*/,
                     string_view name,
                     string_view value,
                     error_code& /*ec*/) override {
    if (!header_done) {  // trailers say nothing that we would act on
      request.fields.emplace_back(lower_case(standard(name)), standard(value));
    }
  }
  void on_header_impl(error_code& /*ec*/) override { header_done = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>& /*length*/,
                         error_code& /*ec*/) override {}
  std::size_t on_body_impl(string_view bytes, error_code& ec) override {
    return add_to_body(bytes, ec);
  }
  void on_chunk_header_impl(std::uint64_t /*size*/,
                            string_view /*extensions*/,
                            error_code& /*ec*/) override {}
  std::size_t on_chunk_body_impl(std::uint64_t /*remain*/,
                                 string_view bytes,
                                 error_code& ec) override {
    return add_to_body(bytes, ec);
  }
  void on_finish_impl(error_code& /*ec*/) override {}
};

class BeastRequestParser final : public RequestParser {
 public:
  BeastRequestParser(const HttpLimits& limits, std::shared_ptr<BodyBudget> budget)
      : limits_(limits), grammar_(std::move(budget)) {
    grammar_.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
    grammar_.body_limit(limits.body_bytes);
    grammar_.eager(false);  // stop after the header: "100 Continue" and our own rules come there
  }

  std::size_t put(std::string_view bytes) override {
    std::size_t consumed = 0;
    while (state_ == State::kNeedsMore && consumed < bytes.size()) {
      error_code ec;
      const bool in_header = !grammar_.header_done;
      const auto rest = bytes.substr(consumed);
      const std::size_t taken = grammar_.put({rest.data(), rest.size()}, ec);
      consumed += taken;
      header_bytes_ += in_header ? taken : 0;
      after_put(ec, in_header, rest.size() - taken);
      if (ec == http::error::need_more) {
        break;
      }
    }
    return consumed;
  }

  [[nodiscard]] State state() const override { return state_; }
  bool take_expectation() override { return std::exchange(expects_continue_, false); }
  [[nodiscard]] HttpRequest& request() override { return grammar_.request; }
  [[nodiscard]] BodyLease take_lease() override { return std::move(grammar_.lease); }
  [[nodiscard]] const Framing& framing() const override { return framing_; }
  [[nodiscard]] const Refusal& refusal() const override { return refusal_; }

 private:
  void after_put(const error_code& ec, bool in_header, std::size_t unconsumed) {
    if (ec && ec != http::error::need_more) {
      refuse(ec);
    } else if (in_header &&
               header_bytes_ + (grammar_.header_done ? 0 : unconsumed) > limits_.header_bytes) {
      // Beast's own limit starts anew with each line that arrives alone.
      refuse_header();
    } else if (!in_header && ec == http::error::need_more && unconsumed > limits_.header_bytes) {
      refuse(400, "malformed_request", "a chunk's header or the trailer is too long");
    } else if (in_header && grammar_.header_done) {
      finish_header();
    }
    if (state_ == State::kNeedsMore && grammar_.is_done()) {
      state_ = State::kDone;
    }
  }

  void refuse(unsigned status, std::string code, std::string message) {
    state_ = State::kRefused;
    refusal_ = {status, std::move(code), std::move(message)};
  }

  void refuse_header() {
    refuse(431,
           "header_too_large",
           "the request's header is over " + std::to_string(limits_.header_bytes) + " bytes");
  }

  void refuse_for_budget() {
    refuse(503,
           "bodies_too_large",
           "the bodies of the requests that the server has now leave no room for this one; all "
           "together may have " +
               std::to_string(grammar_.lease.budget().limit()) + " bytes; try again later");
  }

  void refuse(const error_code& ec) {
    if (ec == http::error::header_limit) {
      refuse_header();
    } else if (grammar_.over_budget) {
      refuse_for_budget();
    } else if (ec == http::error::body_limit) {
      refuse(413,
             "body_too_large",
             "the request's body is over " + std::to_string(limits_.body_bytes) + " bytes");
    } else {
      refuse(400, "malformed_request", "not a request of HTTP/1.1: " + ec.message());
    }
  }

  [[nodiscard]] std::size_t count(std::string_view name) const {
    const auto& fields = grammar_.request.fields;
    return static_cast<std::size_t>(std::count_if(
        fields.begin(), fields.end(), [&](const auto& field) { return field.first == name; }));
  }

  void finish_header() {
    HttpRequest& request = grammar_.request;
    framing_.http_1_1 = grammar_.http_1_1;
    framing_.head_only = request.method == "HEAD";
    framing_.keep_alive = grammar_.keep_alive();
    auto target = parse_target(grammar_.target);
    const std::string coding = lower_case(request.field("transfer-encoding"));
    const std::string expectation = lower_case(request.field("expect"));
    if (!target) {
      refuse(400, "malformed_request", "the request's target is malformed");
    } else if (count("host") > 1 || (framing_.http_1_1 && count("host") == 0)) {
      refuse(400, "malformed_request", "a request of HTTP/1.1 has exactly one host field");
    } else if (!coding.empty() && coding != "chunked") {
      // Beast would read such a body as the next request.
      refuse(501, "unsupported_transfer_encoding", "the only transfer-encoding here is chunked");
    } else if (!coding.empty() && !framing_.http_1_1) {
      refuse(400, "malformed_request", "a request of HTTP/1.0 has no transfer-encoding");
    } else if (!expectation.empty() && expectation != "100-continue") {
      refuse(417, "unsupported_expectation", "the only expectation met here is 100-continue");
    } else if (!grammar_.lease.may_begin(
                   static_cast<std::size_t>(grammar_.content_length().value_or(0)))) {
      refuse_for_budget();
    } else {
      request.path = std::move(target->path);
      request.query = std::move(target->query);
      expects_continue_ = !expectation.empty() && framing_.http_1_1 && !grammar_.is_done();
      grammar_.eager(true);
    }
  }

  const HttpLimits limits_;
  Grammar grammar_;
  State state_ = State::kNeedsMore;
  Framing framing_;
  Refusal refusal_;
  std::size_t header_bytes_ = 0;
  bool expects_continue_ = false;
};

}  // namespace

std::unique_ptr<RequestParser> make_request_parser(const HttpLimits& limits,
                                                   std::shared_ptr<BodyBudget> budget) {
  return std::make_unique<BeastRequestParser>(limits, std::move(budget));
}

}  // namespace troupe::net
