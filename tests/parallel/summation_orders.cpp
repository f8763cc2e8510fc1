#include "tests/parallel/summation_orders.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

using Order = std::vector<int64_t>;

Order random_order(int64_t size, uint64_t seed) {
  Order order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order;
}

/// The rows or columns of a parameter that belong to units of one kind; a gated MLP has each of its units twice.
Order of_units(const Order& units, int64_t size) {
  Order order;
  for (int64_t first = 0; first < size; first += std::ssize(units))
    for (const int64_t unit : units) order.push_back(first + unit);
  return order;
}

Order unchanged(int64_t size) {
  Order order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

template <class T>
void permute(Parameter& parameter, const Order& rows, const Order& columns) {
  T* data = parameter.value().data<T>();
  const std::vector<T> before(data, data + parameter.shape().num_elements());
  for (const int64_t row : rows)
    for (const int64_t column : columns) *data++ = before[static_cast<size_t>(row * std::ssize(columns) + column)];
}

struct Units {
  Order hidden, ffn, vocabulary;
};

/// Which of the two dimensions of a parameter go by which units.
void permute(Parameter& parameter, const Units& units) {
  const std::string& name = parameter.name();
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  const Shape& shape = parameter.shape();
  const int64_t num_rows = shape[0], num_columns = shape.rank() > 1 ? shape[1] : 1;
  const bool is_fc1 = is("linear_fc1"), is_fc2 = is("linear_fc2"), is_matrix = shape.rank() > 1;
  const bool has_hidden_rows = is("layernorm") || is("linear_proj") || is_fc2;
  const bool is_table = is("word_embeddings") || is("output_layer");
  Order table_rows = unchanged(num_rows);  // those of padding stay where they are
  if (is_table) std::ranges::copy(units.vocabulary, table_rows.begin());
  const Order rows = is_table          ? table_rows
                     : is_fc1          ? of_units(units.ffn, num_rows)
                     : has_hidden_rows ? of_units(units.hidden, num_rows)
                                       : unchanged(num_rows);
  const Order columns = !is_matrix || is("linear_proj") ? unchanged(num_columns)
                        : is_fc2                        ? of_units(units.ffn, num_columns)
                                                        : of_units(units.hidden, num_columns);
  switch (parameter.value().dtype()) {
    case DType::kFloat64:
      return permute<double>(parameter, rows, columns);
    case DType::kBFloat16:
      return permute<BFloat16>(parameter, rows, columns);
    default:
      return permute<float>(parameter, rows, columns);
  }
}

/// Token k stands where the vocabulary's order has k.
void rename(MicroBatch<int64_t>& batch, const Order& vocabulary) {
  Order place(vocabulary.size());
  for (size_t i = 0; i < place.size(); ++i) place[static_cast<size_t>(vocabulary[i])] = static_cast<int64_t>(i);
  for (std::vector<int64_t>* ids : {&batch.tokens, &batch.labels})
    for (int64_t& id : *ids) id = place.at(static_cast<size_t>(id));
}

}  // namespace

Curve train_in_order(const std::string& words, uint64_t seed, int num_steps) {
  Trainer trainer(small_config(words), {});
  const TransformerConfig& config = trainer.model().config();
  const Units units{.hidden = random_order(config.hidden_size, seed),
                    .ffn = random_order(config.ffn_hidden_size, seed),
                    .vocabulary = random_order(trainer.config().tokenizer.vocab_size.value(), seed)};
  for (Parameter* parameter : trainer.model().parameters()) permute(*parameter, units);
  trainer.optimizer().reload_main_params(trainer.context());
  Curve curve;
  for (int step = 0; step < num_steps; ++step) {
    const Order samples =
        random_order(trainer.config().training.global_batch_size.value(), 1000 * seed + static_cast<uint64_t>(step));
    auto batches = batches_of(trainer.config(), step, 0, samples);
    for (MicroBatch<int64_t>& batch : batches) rename(batch, units.vocabulary);
    const TrainStepResult result = trainer.train_step(batches);
    curve.losses.push_back(result.loss.mean());
    curve.grad_norms.push_back(result.optimizer.grad_norm);
  }
  return curve;
}

OrdersOfSummation eight_orders(const std::string& words, int num_steps) {
  OrdersOfSummation orders{.first = train_layout(words, 1, 1).losses[0]};
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const double loss = train_in_order(words, seed, num_steps).losses.back();
    orders.least = std::min(orders.least, loss);
    orders.most = std::max(orders.most, loss);
  }
  return orders;
}

}  // namespace megatron::testing
