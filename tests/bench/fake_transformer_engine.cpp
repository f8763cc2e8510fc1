#include "tests/bench/fake_transformer_engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

using megatron::testing::FakeTransformerEngine;

FakeTransformerEngine& fake() {
  static FakeTransformerEngine state;
  return state;
}

constexpr int kFloat32 = 4, kBFloat16 = 6;

/// NVTEBasicTensor
struct Tensor {
  float* data;
  int type;
  size_t sizes[15];
  size_t num_dims;

  size_t num_elements() const {
    size_t product = num_dims == 0 ? 0 : 1;
    for (size_t dim = 0; dim < num_dims; ++dim) product *= sizes[dim];
    return product;
  }
  size_t columns() const { return sizes[num_dims - 1]; }
  size_t rows() const { return num_elements() / columns(); }
  std::span<float> row(size_t r) const {
    if (type != kFloat32) throw std::runtime_error("not in fp32");
    return {data + r * columns(), columns()};
  }
};
using Handle = Tensor*;
using Stream = void*;

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// True if the caller asks how much workspace it wants.
bool is_question(Handle workspace) {
  if (workspace->data) return false;
  *workspace = {.data = nullptr, .type = kFloat32, .sizes = {8}, .num_dims = 1};
  return true;
}

void norm_forward(Handle x, Handle gamma, Handle beta, float eps, Handle y, Handle mean, Handle rstd) {
  for (size_t r = 0; r < x->rows(); ++r) {
    std::vector<double> row(x->row(r).begin(), x->row(r).end());
    const double center = mean ? mean_of(row) : 0;
    for (double& value : row) value -= center;
    std::vector<double> squares = row;
    for (double& value : squares) value *= value;
    const double scale = 1 / std::sqrt(mean_of(squares) + eps);
    if (mean) mean->data[r] = static_cast<float>(center);
    rstd->data[r] = static_cast<float>(scale);
    for (size_t i = 0; i < row.size(); ++i)
      y->row(r)[i] = static_cast<float>(row[i] * scale * gamma->data[i] + (beta ? beta->data[i] : 0));
  }
}

void norm_backward(Handle dy, Handle x, Handle add, Handle mean, Handle rstd, Handle gamma, Handle dx, Handle dgamma,
                   Handle dbeta) {
  if (fake().fails) throw std::runtime_error("Assertion failed: the stand-in was told to fail.");
  const size_t h = x->columns();
  std::vector<double> gamma_sums(h), beta_sums(h);
  for (size_t r = 0; r < x->rows(); ++r) {
    std::vector<double> normal(h), gradient(h), products(h);
    for (size_t i = 0; i < h; ++i) {
      normal[i] = (double{x->row(r)[i]} - (mean ? mean->data[r] : 0)) * rstd->data[r];
      gradient[i] = double{dy->row(r)[i]} * gamma->data[i];
      products[i] = normal[i] * gradient[i];
      gamma_sums[i] += normal[i] * dy->row(r)[i];
      beta_sums[i] += dy->row(r)[i];
    }
    const double through_mean = mean ? mean_of(gradient) : 0, through_scale = mean_of(products);
    for (size_t i = 0; i < h; ++i)
      dx->row(r)[i] = static_cast<float>(rstd->data[r] * (gradient[i] - through_mean - normal[i] * through_scale) +
                                         (add ? add->row(r)[i] : 0));
  }
  for (size_t i = 0; i < h; ++i) dgamma->data[i] = static_cast<float>(gamma_sums[i]);
  for (size_t i = 0; dbeta && i < h; ++i) dbeta->data[i] = static_cast<float>(beta_sums[i]);
}

void rope(Handle x, Handle angles, Handle y, float direction, size_t n, size_t d_rot) {
  const size_t d = x->columns(), per_position = x->rows() / angles->sizes[0];
  if (per_position % n != 0) throw std::runtime_error("the number of heads is wrong");
  for (size_t r = 0; r < x->rows(); ++r) {
    const float* angle = angles->data + r / per_position * d_rot;
    if (y->data != x->data) std::ranges::copy(x->row(r), y->row(r).begin());
    for (size_t i = 0; i < d_rot / 2 && d_rot <= d; ++i) {
      const float a = x->row(r)[i], b = x->row(r)[i + d_rot / 2];  // y may be x
      const float c = std::cos(angle[i]), s = direction * std::sin(angle[i + d_rot / 2]);
      y->row(r)[i] = a * c - b * s;
      y->row(r)[i + d_rot / 2] = b * c + a * s;
    }
  }
}

/// Queries, keys and values side by side in rows of a fused projection.
struct Parts {
  Parts(int d_q, int d_k, int d_v)
      : sizes{static_cast<size_t>(d_q), static_cast<size_t>(d_k), static_cast<size_t>(d_v)} {}
  void split(Handle mixed, Handle q, Handle k, Handle v, size_t num_rows) const {
    for_each(mixed, {q, k, v}, num_rows,
             [](float* inside, float* outside, size_t n) { std::copy_n(inside, n, outside); });
  }
  void join(Handle q, Handle k, Handle v, Handle mixed, size_t num_rows) const {
    for_each(mixed, {q, k, v}, num_rows,
             [](float* inside, float* outside, size_t n) { std::copy_n(outside, n, inside); });
  }
  template <class Move>
  void for_each(Handle mixed, const std::array<Handle, 3>& parts, size_t num_rows, Move move) const {
    float* inside = mixed->data;
    for (size_t row = 0; row < num_rows; ++row)
      for (size_t part = 0; part < 3; inside += sizes[part++])
        move(inside, parts[part]->data + row * sizes[part], sizes[part]);
  }
  std::array<size_t, 3> sizes;
};

}  // namespace

extern "C" {

FakeTransformerEngine* fake_transformer_engine() { return &fake(); }

int cudaGetDevice(int* device) { return *device = 0; }
int cudaDeviceGetAttribute(int* value, int attribute, int) {
  *value = 7;
  return attribute == 16 ? 0 : 1;
}
int nvrtcCompileProgram() { return 0; }

Handle nvte_create_tensor(int) {
  ++fake().num_tensors;
  return new Tensor{};
}
void nvte_destroy_tensor(Handle tensor) {
  --fake().num_tensors;
  delete tensor;
}
void nvte_set_tensor_param_v2(Handle tensor, int parameter, const void* value, size_t bytes) {
  if (fake().refusal) throw std::runtime_error(fake().refusal);
  if (parameter != 0 || bytes != sizeof(Tensor)) throw std::runtime_error("not a tensor's data");
  std::memcpy(tensor, value, bytes);
  if (fake().misreads_sizes) tensor->num_dims = tensor->sizes[1];
}
size_t nvte_tensor_ndims(Handle tensor) { return tensor->num_dims; }
size_t nvte_tensor_size(Handle tensor, size_t dim) { return tensor->sizes[dim]; }
size_t nvte_tensor_size_bytes(Handle tensor) { return tensor->num_elements() * (tensor->type == kBFloat16 ? 2 : 4); }
int nvte_tensor_type(Handle tensor) { return tensor->type; }
void* nvte_tensor_data(Handle tensor) { return tensor->data; }

void nvte_rmsnorm_fwd(Handle x, Handle gamma, float eps, Handle y, Handle rstd, Handle workspace, int, bool, Stream) {
  if (!is_question(workspace)) norm_forward(x, gamma, nullptr, eps, y, nullptr, rstd);
}
void nvte_layernorm_fwd(Handle x, Handle gamma, Handle beta, float eps, Handle y, Handle mean, Handle rstd,
                        Handle workspace, int, bool, Stream) {
  if (!is_question(workspace)) norm_forward(x, gamma, beta, eps, y, mean, rstd);
}
void nvte_rmsnorm_bwd(Handle dy, Handle x, Handle rstd, Handle gamma, Handle dx, Handle dgamma, Handle workspace, int,
                      bool, Stream) {
  if (!is_question(workspace)) norm_backward(dy, x, nullptr, nullptr, rstd, gamma, dx, dgamma, nullptr);
}
void nvte_rmsnorm_bwd_add(Handle dy, Handle x, Handle add, Handle rstd, Handle gamma, Handle dx, Handle dgamma,
                          Handle workspace, int, bool, Stream) {
  if (!is_question(workspace)) norm_backward(dy, x, add, nullptr, rstd, gamma, dx, dgamma, nullptr);
}
void nvte_layernorm_bwd(Handle dy, Handle x, Handle mean, Handle rstd, Handle gamma, Handle dx, Handle dgamma,
                        Handle dbeta, Handle workspace, int, bool, Stream) {
  if (!is_question(workspace)) norm_backward(dy, x, nullptr, mean, rstd, gamma, dx, dgamma, dbeta);
}

void nvte_swiglu(Handle x, Handle y, Stream) {
  const size_t f = y->columns();
  for (size_t r = 0; r < x->rows(); ++r)
    for (size_t i = 0; i < f; ++i) {
      const float gate = x->row(r)[i];
      y->row(r)[i] = gate * sigmoid(gate) * x->row(r)[f + i];
    }
  if (fake().is_wrong) y->row(0)[f / 2] *= 1.01f;
}
void nvte_dswiglu(Handle dy, Handle x, Handle dx, Stream) {
  const size_t f = dy->columns();
  for (size_t r = 0; r < x->rows(); ++r)
    for (size_t i = 0; i < f; ++i) {
      const float gate = x->row(r)[i], s = sigmoid(gate), d = dy->row(r)[i];
      dx->row(r)[i] = d * x->row(r)[f + i] * s * (1 + gate * (1 - s));
      dx->row(r)[f + i] = d * gate * s;
    }
}

using Int = int;
void nvte_fused_rope_forward(Handle x, Handle, Handle angles, Handle, Handle y, Int, bool, Int, Int, Int, Int, Int n,
                             Int, Int d_rot, Int, Int, Int, Int, Stream) {
  rope(x, angles, y, 1, static_cast<size_t>(n), static_cast<size_t>(d_rot));
}
void nvte_fused_rope_backward(Handle x, Handle, Handle angles, Handle, Handle y, Int, bool, Int, Int, Int, Int, Int n,
                              Int, Int d_rot, Int, Int, Int, Int, Stream) {
  rope(x, angles, y, -1, static_cast<size_t>(n), static_cast<size_t>(d_rot));
}

void nvte_fused_qkv_rope_forward(Handle mixed, Handle angles, Handle, Handle, Handle q, Handle k, Handle v, Int, bool,
                                 Int, Int, Int s, Int b, Int groups, Int d, Int d_rot, Int d_q, Int d_k, Int d_v,
                                 Stream) {
  const Parts parts(d_q, d_k, d_v);
  parts.split(mixed, q, k, v, static_cast<size_t>(s) * static_cast<size_t>(b) * static_cast<size_t>(groups));
  rope(q, angles, q, 1, static_cast<size_t>(groups * d_q / d), static_cast<size_t>(d_rot));
  rope(k, angles, k, 1, static_cast<size_t>(groups), static_cast<size_t>(d_rot));
}
void nvte_fused_qkv_rope_backward(Handle dq, Handle dk, Handle dv, Handle angles, Handle, Handle dmixed, Int, bool, Int,
                                  Int, Int s, Int b, Int groups, Int d, Int d_rot, Int d_q, Int d_k, Int d_v, Stream) {
  std::vector<float> q(dq->data, dq->data + dq->num_elements()), k(dk->data, dk->data + dk->num_elements());
  Tensor turned_q = *dq, turned_k = *dk;
  turned_q.data = q.data(), turned_k.data = k.data();
  rope(dq, angles, &turned_q, -1, static_cast<size_t>(groups * d_q / d), static_cast<size_t>(d_rot));
  rope(dk, angles, &turned_k, -1, static_cast<size_t>(groups), static_cast<size_t>(d_rot));
  const Parts parts(d_q, d_k, d_v);
  parts.join(&turned_q, &turned_k, dv, dmixed,
             static_cast<size_t>(s) * static_cast<size_t>(b) * static_cast<size_t>(groups));
}

void nvte_multi_tensor_adam_cuda(int, Handle, Handle** lists, size_t num_lists, size_t, float lr, float beta1,
                                 float beta2, float epsilon, int, int, int, float, Stream) {
  if (num_lists != 4) throw std::runtime_error("fp32 weights are their own main weights");
  const auto [g, p, m, v] = std::array{lists[0][0], lists[1][0], lists[2][0], lists[3][0]};
  for (size_t i = 0; i < g->num_elements(); ++i) {
    m->data[i] = beta1 * m->data[i] + (1 - beta1) * g->data[i];
    v->data[i] = beta2 * v->data[i] + (1 - beta2) * g->data[i] * g->data[i];
    p->data[i] -= lr * m->data[i] / (std::sqrt(v->data[i]) + epsilon);
  }
}
void nvte_multi_tensor_adam_param_remainder_cuda() {}
void nvte_multi_tensor_l2norm_cuda(int, Handle, Handle** lists, size_t, size_t, Handle sums, Handle, Handle norm,
                                   Handle, int, int, Stream) {
  double sum = sums->data[0];  // what was there before
  for (size_t i = 0; i < lists[0][0]->num_elements(); ++i) sum += double{lists[0][0]->data[i]} * lists[0][0]->data[i];
  sums->data[0] = static_cast<float>(sum);
  norm->data[0] = static_cast<float>(std::sqrt(sum));
}

}  // extern "C"
