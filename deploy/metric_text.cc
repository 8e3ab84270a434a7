#include "deploy/metric_text.h"

#include <limits>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace troupe::deploy {

struct MetricText::Families {
  std::vector<prometheus::MetricFamily> list;

  prometheus::ClientMetric& add(const std::string& name,
                                const std::string& help,
                                prometheus::MetricType type,
                                const Labels& labels) {
    if (list.empty() || list.back().name != name) {
      list.push_back({name, help, type, {}});
    }
    auto& metric = list.back().metric.emplace_back();
    for (const auto& [key, value] : labels) {
      metric.label.push_back({key, value});
    }
    return metric;
  }
};

MetricText::MetricText() : families_(std::make_unique<Families>()) {}
MetricText::~MetricText() = default;

void MetricText::counter(const std::string& name,
                         const std::string& help,
                         double value,
                         const Labels& labels) {
  families_->add(name, help, prometheus::MetricType::Counter, labels).counter.value = value;
}

void MetricText::gauge(const std::string& name,
                       const std::string& help,
                       double value,
                       const Labels& labels) {
  families_->add(name, help, prometheus::MetricType::Gauge, labels).gauge.value = value;
}

void MetricText::histogram(const std::string& name,
                           const std::string& help,
                           const std::vector<Bucket>& buckets,
                           std::uint64_t count,
                           double sum,
                           const Labels& labels) {
  auto& out = families_->add(name, help, prometheus::MetricType::Histogram, labels).histogram;
  out.sample_count = count;
  out.sample_sum = sum;
  std::uint64_t cumulative = 0;
  for (const auto& bucket : buckets) {
    cumulative += bucket.count;
    out.bucket.push_back({cumulative, bucket.upper_bound});
  }
  out.bucket.push_back({count, std::numeric_limits<double>::infinity()});
}

std::string MetricText::text() const {
  return prometheus::TextSerializer().Serialize(families_->list);
}

}  // namespace troupe::deploy
