#include "megatron/transformer/moe/router_replay.h"

#include "megatron/autograd/recompute_run.h"
#include "megatron/core/copy.h"

namespace megatron {

void RouterReplay::record() {
  mode_ = Mode::kRecord;
  recorded_.clear();
}

void RouterReplay::replay(std::vector<RecordedRoutes> routes) {
  for (const RecordedRoutes& pass : routes)
    require<ConfigError>(pass.topk > 0 && std::ssize(pass.experts) % pass.topk == 0,
                         "[RouterReplay] {} experts cannot be the {} experts of each token.", pass.experts.size(),
                         pass.topk);
  mode_ = Mode::kReplay;
  replayed_ = std::move(routes);
  next_ = 0;
}

void RouterReplay::stop() {
  mode_ = Mode::kOff;
  replayed_.clear();
}

void RouterReplay::begin_step() {
  if (mode_ == Mode::kRecord) recorded_.clear();
  next_ = 0;
}

Tensor RouterReplay::next_selection(const Context& ctx, const Tensor& logits, int64_t topk) {
  if (mode_ != Mode::kReplay) return {};
  return compute_once(ctx, [&] {
    const int64_t t = logits.size(0), e = logits.size(1);
    require<ShapeError>(next_ < replayed_.size(),
                        "[RouterReplay] forward pass {} has no routes: {} were given to replay().", next_ + 1,
                        replayed_.size());
    const RecordedRoutes& routes = replayed_[next_++];
    require<ShapeError>(routes.topk == topk && std::ssize(routes.experts) == t * topk,
                        "[RouterReplay] the routes of forward pass {} are {} experts of {} tokens; the router chooses "
                        "{} experts of {} tokens.",
                        next_, routes.topk, std::ssize(routes.experts) / routes.topk, topk, t);
    Tensor selection = ctx.empty("router.replayed", logits.shape(), logits.dtype());
    dispatch_floating(logits.dtype(), [&]<class T>() {
      std::vector<T> values(static_cast<size_t>(t * e), static_cast<T>(0.0F));
      for (int64_t i = 0; i < t * topk; ++i) {
        const int64_t expert = routes.experts[static_cast<size_t>(i)];
        require<ShapeError>(0 <= expert && expert < e,
                            "[RouterReplay] expert {} of token {} in forward pass {} is none of {} experts.", expert,
                            i / topk, next_, e);
        values[static_cast<size_t>(i / topk * e + expert)] = static_cast<T>(1.0F);
      }
      write_values<T>(ctx.device, values, selection);
    });
    return selection;
  });
}

void RouterReplay::add(const Context& ctx, const Tensor& map, int64_t topk) {
  if (mode_ != Mode::kRecord || !ctx.is_first_run() || ctx.device.kind() == DeviceKind::kMeta) return;
  const std::vector<uint8_t> is_chosen = read_values<uint8_t>(ctx.device, map);
  RecordedRoutes routes{.topk = topk, .experts = {}};
  for (size_t i = 0; i < is_chosen.size(); ++i)
    if (is_chosen[i] != 0) routes.experts.push_back(static_cast<int32_t>(static_cast<int64_t>(i) % map.size(1)));
  recorded_.push_back(std::move(routes));
}

}  // namespace megatron
