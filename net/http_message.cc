#include "net/http_message.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace troupe::net {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      decoded.push_back(text[at]);
      continue;
    }
    const int high = at + 2 < text.size() ? hex_digit(text[at + 1]) : -1;
    const int low = at + 2 < text.size() ? hex_digit(text[at + 2]) : -1;
    if (high < 0 || low < 0 || (high == 0 && low == 0)) {
      return std::nullopt;
    }
    decoded.push_back(static_cast<char>(high * 16 + low));
    at += 2;
  }
  return decoded;
}

std::string_view reason_of(unsigned status) {
  struct Row {
    unsigned status;
    std::string_view reason;
  };
  static constexpr std::array kRows = {
      Row{200, "OK"},
      Row{201, "Created"},
      Row{202, "Accepted"},
      Row{204, "No Content"},
      Row{301, "Moved Permanently"},
      Row{302, "Found"},
      Row{304, "Not Modified"},
      Row{400, "Bad Request"},
      Row{401, "Unauthorized"},
      Row{403, "Forbidden"},
      Row{404, "Not Found"},
      Row{405, "Method Not Allowed"},
      Row{406, "Not Acceptable"},
      Row{408, "Request Timeout"},
      Row{409, "Conflict"},
      Row{411, "Length Required"},
      Row{413, "Content Too Large"},
      Row{415, "Unsupported Media Type"},
      Row{417, "Expectation Failed"},
      Row{422, "Unprocessable Content"},
      Row{429, "Too Many Requests"},
      Row{431, "Request Header Fields Too Large"},
      Row{500, "Internal Server Error"},
      Row{501, "Not Implemented"},
      Row{503, "Service Unavailable"},
      Row{504, "Gateway Timeout"},
  };
  const auto* row = std::find_if(
      kRows.begin(), kRows.end(), [status](const Row& r) { return r.status == status; });
  return row == kRows.end() ? "Status" : row->reason;
}

std::string two_digits(int value) {
  return {static_cast<char>('0' + value / 10), static_cast<char>('0' + value % 10)};
}

// "Sun, 06 Nov 1994 08:49:37 GMT", whatever the locale.
std::string http_date(std::time_t unix_s) {
  static constexpr std::array<std::string_view, 7> kDays = {
      "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array<std::string_view, 12> kMonths = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&unix_s, &utc);
  std::string date(kDays[static_cast<std::size_t>(utc.tm_wday)]);
  date += ", " + two_digits(utc.tm_mday) + " ";
  date += kMonths[static_cast<std::size_t>(utc.tm_mon)];
  date += " " + std::to_string(1900 + utc.tm_year) + " " + two_digits(utc.tm_hour) + ":" +
          two_digits(utc.tm_min) + ":" + two_digits(utc.tm_sec) + " GMT";
  return date;
}

void append_field(std::string& head, std::string_view name, std::string_view value) {
  const auto append = [&head](std::string_view text) {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      head.push_back(byte < 0x20 || byte == 0x7F ? ' ' : c);
    }
  };
  append(name);
  head += ": ";
  append(value);
  head += "\r\n";
}

}  // namespace

std::string_view HttpRequest::field(std::string_view lower_case_name) const {
  const auto found = std::find_if(
      fields.begin(), fields.end(), [&](const auto& f) { return f.first == lower_case_name; });
  return found == fields.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<Target> parse_target(std::string_view target) {
  if (target == "*") {
    return Target{"*", ""};
  }
  if (!target.starts_with('/')) {  // absolute-form, as to a proxy: http://host/path
    const std::size_t scheme = target.find("://");
    if (scheme == std::string_view::npos || scheme == 0) {
      return std::nullopt;
    }
    const std::size_t path = target.find_first_of("/?", scheme + 3);
    target = path == std::string_view::npos ? "" : target.substr(path);
  }
  const std::size_t mark = target.find('?');
  auto path = percent_decoded(target.substr(0, mark));
  if (!path) {
    return std::nullopt;
  }
  if (path->empty()) {
    *path = "/";
  }
  const auto query = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  return Target{std::move(*path), std::string(query)};
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  }
  return lower;
}

bool is_bodiless(unsigned status) {
  return status < 200 || status == 204 || status == 304;
}

std::string head_of(const HttpResponse& response,
                    Body body,
                    const Framing& framing,
                    std::time_t unix_s) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head += reason_of(response.status);
  head += "\r\n";
  append_field(head, "date", http_date(unix_s));
  if (!is_bodiless(response.status)) {
    if (!response.content_type.empty()) {
      append_field(head, "content-type", response.content_type);
    }
    if (body == Body::kWhole) {
      append_field(head, "content-length", std::to_string(response.body.size()));
    } else if (framing.http_1_1) {
      append_field(head, "transfer-encoding", "chunked");
    }
  }
  if (!framing.keep_alive) {
    append_field(head, "connection", "close");
  } else if (!framing.http_1_1) {
    append_field(head, "connection", "keep-alive");
  }
  for (const auto& [name, value] : response.fields) {
    append_field(head, name, value);
  }
  return head + "\r\n";
}

std::string chunk_of(std::string_view piece) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string size;
  for (std::size_t rest = piece.size(); rest != 0; rest >>= 4U) {
    size.insert(size.begin(), kDigits[rest & 15U]);
  }
  std::string chunk;
  chunk.reserve(size.size() + piece.size() + 4);
  chunk += size;
  chunk += "\r\n";
  chunk += piece;
  chunk += "\r\n";
  return chunk;
}

HttpResponse response_of(const Refusal& refusal) {
  const std::string_view type = refusal.status < 500 ? "invalid_request_error" : "server_error";
  HttpResponse response;
  response.status = refusal.status;
  response.body = R"({"error":{"message":")" + refusal.message + R"(","type":")" +
                  std::string(type) + R"(","param":null,"code":")" + refusal.code + R"("}})";
  if (refusal.status == 503) {
    response.fields.emplace_back("retry-after", "1");
  }
  return response;
}

}  // namespace troupe::net
