#include "net/http_message.h"

#include <gtest/gtest.h>

namespace troupe::net {
namespace {

constexpr std::time_t kNow = 784111777;  // RFC 9110's example

// "none" when there is no target.
std::string path_of(std::string_view target) {
  return parse_target(target).value_or(Target{"none", ""}).path;
}

std::string query_of(std::string_view target) {
  return parse_target(target).value_or(Target{"", "none"}).query;
}

TEST(Target, SplitsPathFromQuery) {
  EXPECT_EQ(path_of("/v1/models?limit=%20"), "/v1/models");
  EXPECT_EQ(query_of("/v1/models?limit=%20"), "limit=%20");
}

TEST(Target, DecodesPercentSignsInThePath) {
  EXPECT_EQ(path_of("/a%2Fb%c3%A9"), "/a/b\xc3\xa9");
}

TEST(Target, RefusesABrokenPercentSignAndANulByte) {
  EXPECT_FALSE(parse_target("/a%"));
  EXPECT_FALSE(parse_target("/a%4"));
  EXPECT_FALSE(parse_target("/a%zz"));
  EXPECT_FALSE(parse_target("/a%00"));
}

TEST(Target, IsReadInAbsoluteForm) {
  EXPECT_EQ(path_of("http://[::1]:80/x?y"), "/x");
  EXPECT_EQ(query_of("http://host?y"), "y");
  EXPECT_EQ(path_of("http://host"), "/");
}

TEST(Target, RefusesWhatIsNoPath) {
  EXPECT_FALSE(parse_target("host:80"));
  EXPECT_FALSE(parse_target("x"));
  EXPECT_EQ(path_of("*"), "*");
}

TEST(ResponseHead, SaysLengthTypeAndDate) {
  HttpResponse response;
  response.body = "12345";

  EXPECT_EQ(head_of(response, Body::kWhole, {}, kNow),
            "HTTP/1.1 200 OK\r\n"
            "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            "content-type: application/json\r\n"
            "content-length: 5\r\n\r\n");
}

TEST(ResponseHead, OfAStreamIsChunkedForHttp11AndEndsWithTheConnectionForHttp10) {
  const HttpResponse response;

  EXPECT_NE(head_of(response, Body::kPieces, {}, kNow).find("transfer-encoding: chunked\r\n"),
            std::string::npos);
  const std::string old =
      head_of(response, Body::kPieces, {.http_1_1 = false, .keep_alive = false}, kNow);
  EXPECT_EQ(old.find("transfer-encoding"), std::string::npos);
  EXPECT_NE(old.find("connection: close\r\n"), std::string::npos);
}

TEST(ResponseHead, CannotBeEndedByAFieldOfTheCaller) {
  HttpResponse response;
  response.fields = {{"x-request-id", "a\r\nset-cookie: b"}};

  EXPECT_NE(head_of(response, Body::kWhole, {}, kNow).find("x-request-id: a  set-cookie: b\r\n"),
            std::string::npos);
}

TEST(ResponseHead, OfANoContentAnswerHasNoLength) {
  HttpResponse response;
  response.status = 204;

  EXPECT_EQ(head_of(response, Body::kWhole, {}, kNow).find("content-"), std::string::npos);
}

TEST(Chunk, StartsWithItsSizeInHex) {
  EXPECT_EQ(chunk_of(std::string(26, 'x')), "1a\r\n" + std::string(26, 'x') + "\r\n");
}

TEST(RefusalResponse, HasTheShapeOfOpenAisErrors) {
  EXPECT_EQ(response_of({400, "malformed_request", "no host"}).body,
            R"({"error":{"message":"no host","type":"invalid_request_error","param":null,)"
            R"("code":"malformed_request"}})");
}

TEST(Request, FindsAFieldByItsName) {
  HttpRequest request;
  request.fields = {{"a", "1"}, {"b", "2"}, {"b", "3"}};

  EXPECT_EQ(request.field("b"), "2");
  EXPECT_EQ(request.field("c"), "");
}

}  // namespace
}  // namespace troupe::net
