// Elementary functions in double that give the same bits on every machine and at every optimisation
// level: no libm, no fused multiply-add, only IEEE + - * /. For tables computed at load (rotary
// frequencies, YaRN, -exp(A_log)), rotary angles and the sampler's last digits. Pure, any thread.
// Relative error below 2e-15.
#pragma once

namespace troupe {

[[nodiscard]] double exp_d(double x);  // 0 below -746, infinity above 709.8; NaN stays NaN
[[nodiscard]] double log_d(double x);  // -infinity at 0, NaN below
[[nodiscard]] double pow_d(double x, double y);  // exp(y log x). REQUIRES: x > 0

struct SinCos {
  double sin = 0;
  double cos = 1;
};
[[nodiscard]] SinCos sin_cos_d(
    double radians);  // REQUIRES: |radians| <= 2^25; the error is absolute, below 1e-16 or so

}  // namespace troupe
